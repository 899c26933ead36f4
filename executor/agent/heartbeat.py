"""Heartbeat: keeps a lease, hears what to do, and says how long the ranks may go on unheard."""

from __future__ import annotations

import threading
from collections.abc import Callable

from executor.agent.backoff import Backoff
from executor.agent.client import Client
from executor.agent.errors import AwayError, RefusedError, StaleError
from executor.agent.held_lease import HeldLease
from executor.agent.run_folder import machine_seconds
from planner.schema.lease import Heartbeat as Beat
from planner.schema.lease import HeartbeatAnswer

_SHORTEST_ANSWER_SECONDS = 2.0


class Heartbeat(threading.Thread):
    """Beats until the lease is over or lost."""

    def __init__(self, client: Client, held: HeldLease, before: Callable[[], None]) -> None:
        """Beat for `held`; `before` is called ahead of each beat, to look at the progress."""
        super().__init__(name="heartbeat", daemon=True)
        self._client = client
        self._held = held
        self._before = before
        self._interval = held.lease.intervals.heartbeat_seconds

    def run(self) -> None:
        """Beat at once when something changes, else at the interval."""
        backoff = Backoff(longest_seconds=self._interval)
        while not self._held.over.is_set() and not self._held.is_lost:
            self._held.changed.clear()
            pause = self._beat(backoff)
            self._held.changed.wait(pause)

    def _beat(self, backoff: Backoff) -> float:
        """Beat once; return the pause until the next."""
        held = self._held
        self._before()
        sent_at = machine_seconds()
        patience = max(_SHORTEST_ANSWER_SECONDS, self._interval)
        try:
            answer = self._client.heartbeat(held.lease.id, self._words(), seconds=patience)
        except AwayError as error:
            held.is_away = True
            return backoff.pause_seconds(error.retry_seconds)
        except (StaleError, RefusedError) as error:
            if not held.is_result_sent:
                held.lose(str(error))
            return self._interval
        held.is_away = False
        backoff.reset()
        self._hear(answer, sent_at)
        return self._interval

    def _hear(self, answer: HeartbeatAnswer, sent_at: float) -> None:
        held = self._held
        # Counted from when it was sent: the server's own time began later.
        held.folder.write_until(sent_at + answer.intervals.give_up_seconds)
        self._interval = answer.intervals.heartbeat_seconds
        held.answer = answer
        held.news.set()

    def _words(self) -> Beat:
        held = self._held
        return Beat(
            epoch=held.lease.epoch,
            state=held.state,
            progress=held.progress(),
            master_port=held.master_port,
        )
