"""Waiting: what is to be looked into, under lower bounds, the least first."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


@dataclass(slots=True)
class Waiting(Generic[_Item]):
    """Items under their lower bounds; of equal ones what came first is first.

    `count` is how many ever came.
    """

    count: int = 0
    _heap: list[tuple[float, int, _Item]] = field(default_factory=list)

    def __len__(self) -> int:
        """Return how many items wait."""
        return len(self._heap)

    def least(self) -> float:
        """Return the least bound, inf where nothing waits."""
        return self._heap[0][0] if self._heap else float("inf")

    def push(self, item: _Item, lower: float) -> None:
        """Let an item wait under a bound."""
        self.count += 1
        heapq.heappush(self._heap, (lower, self.count, item))

    def pop(self) -> tuple[float, _Item]:
        """Take the item with the least bound; return it with that.

        Raises:
            IndexError: if nothing waits.
        """
        lower, _, item = heapq.heappop(self._heap)
        return lower, item

    def clear(self) -> None:
        """Let nothing wait any more."""
        self._heap.clear()
