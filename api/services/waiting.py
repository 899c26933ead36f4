"""Agents that wait in this process for a lease, and how they are woken.

A lease that this process makes wakes its agents at once. For those that other processes make, the
sweeper asks the database once for all that wait here. Nobody waits in a loop of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager


class Place:
    """One request that waits; made in the event loop that it waits in."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    async def woken(self, seconds: float) -> bool:
        """Return whether there is something to fetch, as soon as there is."""
        if seconds <= 0:
            return self._event.is_set()
        try:
            await asyncio.wait_for(self._event.wait(), timeout=seconds)
        except TimeoutError:
            return False
        return True

    def wake(self) -> None:
        """Wake the request, from any thread; one whose server has gone needs it no more."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._event.set)


class WaitingAgents:
    """The requests of this process that wait, by agent."""

    def __init__(self) -> None:
        self._places: dict[str, set[Place]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def place(self, agent_id: str) -> Iterator[Place]:
        """Have the agent wait inside the block: what happens from its start on wakes it."""
        place = Place()
        with self._lock:
            self._places.setdefault(agent_id, set()).add(place)
        try:
            yield place
        finally:
            with self._lock:
                self._places[agent_id].discard(place)
                if not self._places[agent_id]:
                    del self._places[agent_id]

    def agent_ids(self) -> list[str]:
        """Return who waits."""
        with self._lock:
            return list(self._places)

    def wake(self, agent_ids: Collection[str]) -> None:
        """Wake those of these agents that wait here."""
        with self._lock:
            places = [place for name in agent_ids for place in self._places.get(name, ())]
        for place in places:
            place.wake()

    def wake_all(self) -> None:
        """Wake all, for the end of the service."""
        self.wake(self.agent_ids())
