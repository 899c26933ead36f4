"""The sweeper: a thread of each process that does what no request asks for.

Leases expire, queued runs find agents, replanning and tunings go on, and agents that wait here
learn of leases that other processes made. Every step is a transaction that claims what it touches,
so several processes may sweep the same database.

A process that could not have heard of agents must not hold their silence against them: it lets
leases expire only after it has swept for the length of a lease without a gap. After a restart, a
pause, or an outage of the database, agents have that long to be heard of again. The same holds when
the database's clock is set: time that did not pass lets nothing expire.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import structlog

from api.db import UNAVAILABLE, Database, reason_of
from api.repositories.agents import AgentRepository
from api.repositories.clock import current_time
from api.repositories.leases import LeaseRepository
from api.repositories.runs import RunRepository
from api.services.run_moves import AfterStop, Ending, end_lease
from api.services.waiting import WaitingAgents
from api.services.watch import Watch
from api.settings import Settings
from api.tables import LeaseRow
from planner.schema.lifecycle import Actor, LeaseState

log = structlog.get_logger(__name__)


class Sweeper:
    """Sweeps until it is closed: leases first, and then `steps`, which do what is due elsewhere."""

    def __init__(
        self,
        database: Database,
        waiting: WaitingAgents,
        *,
        steps: Sequence[Callable[[], None]],
        settings: Settings,
    ) -> None:
        self._database = database
        self._waiting = waiting
        self._steps = steps
        self._settings = settings
        # Agents speak every quarter of a lease: after a gap of half a lease there is one left.
        gap_seconds = max(settings.agent_lease_seconds / 2, 4 * settings.sweep_seconds)
        self._watch = Watch(gap_seconds=gap_seconds, step_seconds=settings.agent_lease_seconds / 8)
        longest = max(settings.agent_lease_seconds, settings.agent_acknowledge_seconds)
        self._longest = timedelta(seconds=longest)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._sweep_on, name="sweeper", daemon=True)

    def open(self) -> None:
        """Sweep from now on."""
        self._watch.break_off()
        self._thread.start()

    def close(self) -> None:
        """Stop, and let those go that wait."""
        self._closing.set()
        self._waiting.wake_all()
        if self._thread.is_alive():
            self._thread.join()

    def sweep(self) -> None:
        """Do once what is to be done."""
        self._watch.keep()
        self._wake_waiting()
        self.expire()
        for step in self._steps:
            step()

    def expire(self) -> None:
        """End the leases whose time has passed, if this process could have heard of them.

        Those that would last longer than any lease may are shortened on the way.
        """
        before = time.monotonic()
        with self._database.reading() as session:
            at = current_time(session)
            after = time.monotonic()
            overdue = LeaseRepository(session).overdue(at=at, longest=self._longest)
        self._watch.compare(at, before=before, after=after)
        for lease in overdue:
            if self._watch.has_lasted(self._needed_seconds(lease)):
                self._expire(lease.id, lease.run_id, at=at)

    def _sweep_on(self) -> None:
        while not self._closing.wait(self._settings.sweep_seconds):
            try:
                self.sweep()
            except UNAVAILABLE as error:
                log.warning("database unavailable", reason=reason_of(error))
                self._watch.break_off()
            except Exception:
                log.exception("sweep failed")

    def _needed_seconds(self, lease: LeaseRow) -> float:
        if lease.state == LeaseState.OFFERED:
            return self._settings.agent_acknowledge_seconds
        return self._settings.agent_lease_seconds

    def _expire(self, lease_id: str, run_id: str, *, at: datetime) -> None:
        """End the lease if it was overdue `at` that moment, by a clock that was compared."""
        with self._database.writing() as session:
            run = RunRepository(session).locked(run_id)
            lease = LeaseRepository(session).locked(lease_id)
            if lease.ended_at is None and lease.expires_at > at + self._longest:
                # The database's clock was set back: nothing is leased for longer than that.
                lease.expires_at = at + self._longest
            if lease.ended_at is not None or lease.expires_at >= at:
                return
            AgentRepository(session).withdraw([lease.agent_id])
            end_lease(session, run, lease, self._ending(lease), at=at)

    def _ending(self, lease: LeaseRow) -> Ending:
        if lease.state == LeaseState.OFFERED:
            seconds, after = self._settings.agent_acknowledge_seconds, AfterStop.RESUME
            reason = f"it was not acknowledged within {seconds:g} s"
        else:
            seconds, after = self._settings.agent_lease_seconds, AfterStop.REPLAN
            reason = f"nothing was heard of the agent for {seconds:g} s"
        return Ending(
            state=LeaseState.EXPIRED, reason=reason, actor=Actor.SERVICE, after_stop=after
        )

    def _wake_waiting(self) -> None:
        """Wake the agents that wait here and were leased by another process."""
        waiting = self._waiting.agent_ids()
        if not waiting:
            return
        with self._database.reading() as session:
            leased = LeaseRepository(session).live_of_agents(waiting)
        self._waiting.wake([lease.agent_id for lease in leased])
