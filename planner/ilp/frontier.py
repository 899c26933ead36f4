"""Frontier: the configurations of a search by the best lower bound known of each.

They wait in a heap, the least key first. A key only ever rises: first the bound without memory,
then the one with memory for many at once, then that of the configuration alone, then what a solve
below a cutoff has proven. What is best is kept by group of degrees, so that several different plans
can be asked for at once.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from planner.ilp.instance import Assignment

PROOF_TOLERANCE = 1e-9
_NEAR_HEAD = 8


class Stage(IntEnum):
    """How far a configuration has been looked into."""

    QUICK = 0
    SCREENED = 1
    BOUNDED = 2
    SHARPENED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best plan known of some degrees."""

    index: int
    step_seconds: float
    assignment: Assignment


@dataclass(slots=True, kw_only=True)
class Frontier:
    """Keys of all configurations, and the best plans of `group_count` groups within a cutoff.

    `groups` says which configurations have the same degrees, [configurations].
    """

    keys: list[float]
    groups: Sequence[int]
    cutoff_seconds: float = float("inf")
    group_count: int = 1
    stages: list[Stage] = field(default_factory=list)
    best: dict[int, Best] = field(default_factory=dict)
    left_open: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    _heap: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Order the keys."""
        self.stages = [Stage.QUICK] * len(self.keys)
        self._heap = [(key, i) for i, key in enumerate(self.keys) if math.isfinite(key)]
        heapq.heapify(self._heap)

    @property
    def open_count(self) -> int:
        """Return how many configurations wait."""
        return len(self._heap)

    def ranked(self) -> list[Best]:
        """Return the best plans of different degrees, as many as were asked for, best first."""
        order = sorted(self.best.values(), key=lambda best: (best.step_seconds, best.index))
        return order[: self.group_count]

    def incumbent_seconds(self) -> float:
        """Return the step of the best plan, inf without any."""
        return min((best.step_seconds for best in self.best.values()), default=float("inf"))

    def limit_seconds(self) -> float:
        """Return the step that a plan must be below to matter at all."""
        ranked = self.ranked()
        last = ranked[-1].step_seconds if len(ranked) == self.group_count else float("inf")
        return min(last, self.cutoff_seconds)

    def limit_of(self, index: int) -> float:
        """Return the step that a plan of this configuration must be below to matter."""
        own = self.best.get(self.groups[index])
        known = float("inf") if own is None else own.step_seconds
        return min(self.limit_seconds(), known)

    def limits_of(self, indices: Sequence[int]) -> list[float]:
        """Return the same for many configurations."""
        limit = self.limit_seconds()
        own = {group: min(limit, best.step_seconds) for group, best in self.best.items()}
        return [own.get(self.groups[index], limit) for index in indices]

    def offer(self, index: int, step_seconds: float, assignment: Assignment) -> None:
        """Take a plan note of if it is the best of its degrees, by more than rounding."""
        if step_seconds > self.cutoff_seconds * (1.0 + PROOF_TOLERANCE):
            return
        group = self.groups[index]
        known = self.best.get(group)
        if known is None or step_seconds < known.step_seconds * (1.0 - 1e-12):
            self.best[group] = Best(index=index, step_seconds=step_seconds, assignment=assignment)

    def pop(self) -> tuple[float, int] | None:
        """Return the least key that may still matter with its configuration, None if none does."""
        limit = self.limit_seconds() * (1.0 - PROOF_TOLERANCE)
        while self._heap:
            key, index = heapq.heappop(self._heap)
            if key < self.keys[index]:
                continue
            if key >= limit:
                heapq.heappush(self._heap, (key, index))
                return None
            if key < self.limit_of(index) * (1.0 - PROOF_TOLERANCE):
                return key, index
        return None

    def pop_quick(self, most: int) -> list[int]:
        """Return up to `most` further configurations that nobody has looked into, in key order."""
        limit = self.limit_seconds()
        found: list[int] = []
        put_back: list[tuple[float, int]] = []
        while self._heap and len(found) < most:
            key, index = heapq.heappop(self._heap)
            if key >= limit:
                put_back.append((key, index))
                break
            if self.stages[index] is Stage.QUICK:
                found.append(index)
            else:
                put_back.append((key, index))
        for entry in put_back:
            heapq.heappush(self._heap, entry)
        return found

    def next_indices(self, count: int, stage: Stage) -> list[int]:
        """Return up to `count` configurations of `stage` near the head of the heap.

        The first places of a heap hold small keys, if not the smallest: enough to price ahead.
        """
        near = sorted(self._heap[: _NEAR_HEAD * count])
        return [index for _, index in near if self.stages[index] is stage][:count]

    def push(self, index: int, key: float) -> None:
        """Let a configuration wait again under a key that is no lower than before."""
        self.keys[index] = max(self.keys[index], key)
        if math.isfinite(self.keys[index]):
            heapq.heappush(self._heap, (self.keys[index], index))

    def wait(self, index: int, key: float) -> None:
        """Let a configuration that took too long wait until all others are looked into."""
        self.keys[index] = max(self.keys[index], key)
        self.waiting.append(index)

    def postpone(self, index: int) -> None:
        """Let a configuration that waits under its key wait until all others are looked into."""
        self._heap = [entry for entry in self._heap if entry[1] != index]
        heapq.heapify(self._heap)
        self.waiting.append(index)

    def next_key(self) -> float:
        """Return the least key in the heap, inf without any."""
        return self._heap[0][0] if self._heap else float("inf")

    def pop_waiting(self) -> tuple[float, int] | None:
        """Return the least key of those that wait for all others, None if none matters."""
        while self.waiting:
            index = min(self.waiting, key=lambda i: (self.keys[i], i))
            self.waiting.remove(index)
            if self.keys[index] < self.limit_of(index) * (1.0 - PROOF_TOLERANCE):
                return self.keys[index], index
        return None

    def leave_open(self, index: int) -> None:
        """Take note that a configuration's key is not reached by any plan known of it."""
        self.left_open.append(index)

    def lower_bound(self) -> float:
        """Return what no plan can beat: the least key that waits or is open, or the best plan."""
        waiting = min((key for key, _ in self._heap), default=float("inf"))
        others = [*self.left_open, *self.waiting]
        left = min((self.keys[index] for index in others), default=float("inf"))
        return min(waiting, left, self.incumbent_seconds())
