"""Frontier: the open configurations of a search, and what it knows besides.

Line: configurations that nobody has looked into, by their keys, taken from the front.

A search has them by the hundred thousand, so that they stand in arrays. Those that were taken out
of turn stay where they are until they come to the front: `stages` says who still waits.

Frontier: the configurations of a search by the best lower bound known of each.

They wait in a heap, the least key first. A key only ever rises: first the bound without memory,
then the one with memory for many at once, then that of the configuration alone, then what a solve
below a cutoff has proven. What is best is kept by group of degrees, so that several different plans
can be asked for at once.

State: what a search knows besides the keys of its frontier.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from planner.cost.configuration import Choice, Configurations, Floats, Integers
from planner.cost.price_list import PriceList
from planner.ilp.branch_and_bound import Branching
from planner.ilp.instance import Assignment, Instance
from planner.ilp.milp import SolverName
from planner.ilp.pricing import Pricing
from planner.ilp.problem import ONE_GROUP, Effort, Group, Groups, Problem
from planner.ilp.settings import (
    FINE_ROUNDING,
    PROOF_TOLERANCE,
    ROWS_AT_ONCE,
)

Stages = NDArray[np.int8]


@dataclass(slots=True)
class Line:
    """Configurations that wait at a `stage`; `stages` [configurations] are where all are.

    `keys` and `indices` [places] are in the order of keys, and of indices where keys are equal.
    """

    keys: Floats
    indices: Integers
    stages: Stages
    stage: int

    def waiting(self) -> Integers:
        """Return the configurations that wait here, without those that went elsewhere."""
        found: Integers = self.indices[self.stages[self.indices] == self.stage]
        return found

    def head(self) -> tuple[float, int] | None:
        """Return the least key with its configuration, None where nobody waits."""
        start = 0
        while start < len(self.keys) and self.stages[self.indices[start]] != self.stage:
            start += 1
        self._drop(start)
        return (float(self.keys[0]), int(self.indices[0])) if len(self.keys) else None

    def take(self, most: int, *, below: float, up_to: float = float("inf")) -> list[int]:
        """Remove and return up to `most` with keys below one number, and up to another."""
        end = min(np.searchsorted(self.keys, below), np.searchsorted(self.keys, up_to, "right"))
        waiting = np.flatnonzero(self.stages[self.indices[:end]] == self.stage)[:most]
        found: list[int] = self.indices[waiting].tolist()
        self._drop(int(waiting[-1]) + 1 if len(found) else int(end))
        return found

    def join(self, keys: Floats, indices: Integers) -> None:
        """Let some more wait, each at its place."""
        keys, indices = np.concatenate([self.keys, keys]), np.concatenate([self.indices, indices])
        order = np.lexsort((indices, keys))
        self.keys, self.indices = keys[order], indices[order]

    def _drop(self, count: int) -> None:
        self.keys, self.indices = self.keys[count:], self.indices[count:]


def line_of(keys: Floats, stages: Stages, stage: int) -> Line:
    """Return a line of all configurations with finite keys [configurations]."""
    order = np.argsort(keys, kind="stable")[: np.count_nonzero(np.isfinite(keys))]
    return Line(keys=keys[order], indices=order, stages=stages, stage=stage)


Refine = Callable[[list[int]], tuple[list[int], list[float]]]
"""Says for some configurations, and maybe for others, what their better keys are."""


class Stage(IntEnum):
    """How far a configuration has been looked into."""

    ROUGH = -1
    QUICK = 0
    SCREENED = 1
    BOUNDED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best plan known of some degrees, as one of an `instance` of its own or of the usual."""

    index: int
    step_seconds: float
    assignment: Assignment
    instance: Instance | None = None


@dataclass(slots=True, kw_only=True)
class Frontier:
    """Keys of all configurations, and the best plans of `group_count` groups within a cutoff.

    `groups` says which configurations have the same degrees, [configurations]. Where `keys` are
    rough, `refine` makes them quick bounds.
    """

    keys: list[float]
    groups: Sequence[int]
    cutoff_seconds: float = float("inf")
    group_count: int = 1
    refine: Refine | None = None
    stages: Stages = field(init=False)
    best: dict[int, Best] = field(default_factory=dict)
    left_open: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    closed_groups: set[int] = field(default_factory=set)
    _taken: set[int] = field(default_factory=set)
    _heap: list[tuple[float, int]] = field(default_factory=list)
    _quick: Line = field(init=False)
    _rough: Line = field(init=False)

    def __post_init__(self) -> None:
        """Order the keys; those that nobody has looked into wait apart."""
        first, keys = Stage.QUICK if self.refine is None else Stage.ROUGH, np.array(self.keys)
        self.stages = np.full(len(keys), first, dtype=np.int8)
        all_keys, none = line_of(keys, self.stages, first), line_of(keys[:0], self.stages, first)
        self._quick, self._rough = (all_keys, none) if self.refine is None else (none, all_keys)
        self._quick.stage = Stage.QUICK

    @property
    def open_count(self) -> int:
        """Return how many configurations wait and may still matter, each of them once."""
        waits = np.zeros(len(self.keys), dtype=bool)
        waits[[index for key, index in self._heap if key >= self.keys[index]]] = True
        waits[list(self._taken)] = False
        for line in (self._quick, self._rough):
            waits[line.waiting()] = True
        return int(np.count_nonzero(np.array(self.keys)[waits] < self.limit_seconds()))

    def ranked(self) -> list[Best]:
        """Return the best plans of different degrees, as many as were asked for, best first."""
        order = sorted(self.best.values(), key=lambda best: (best.step_seconds, best.index))
        return order[: self.group_count]

    def incumbent_seconds(self) -> float:
        """Return the step of the best plan, inf without any."""
        return min((best.step_seconds for best in self.best.values()), default=float("inf"))

    def settled(self, key: float, tolerance_ratio: float) -> list[Best]:
        """Return the best plans that nothing left of their groups beats by more, best first.

        Whatever waits in the heap has this key at least.
        """
        least: dict[int, float] = {}
        for index in (*self.left_open, *self.waiting):
            group = self.groups[index]
            least[group] = min(self.keys[index], least.get(group, key))
        order = sorted(self.best.items(), key=lambda item: (item[1].step_seconds, item[1].index))
        below = 1.0 - max(PROOF_TOLERANCE, tolerance_ratio)
        return [b for group, b in order if b.step_seconds * below <= least.get(group, key)]

    def limit_seconds(self) -> float:
        """Return the step that a plan must be below to matter at all."""
        ranked = self.ranked()
        last = ranked[-1].step_seconds if len(ranked) == self.group_count else float("inf")
        return min(last, self.cutoff_seconds)

    def limit_of(self, index: int) -> float:
        """Return the step that a plan of this configuration must be below to matter."""
        if self.groups[index] in self.closed_groups:
            return 0.0
        own = self.best.get(self.groups[index])
        known = float("inf") if own is None else own.step_seconds
        return min(self.limit_seconds(), known)

    def limits_of(self, indices: Sequence[int]) -> list[float]:
        """Return the same for many configurations."""
        limit = self.limit_seconds()
        own = {group: min(limit, best.step_seconds) for group, best in self.best.items()}
        own |= dict.fromkeys(self.closed_groups, 0.0)
        return [own.get(self.groups[index], limit) for index in indices]

    def offer(
        self,
        index: int,
        step_seconds: float,
        assignment: Assignment,
        instance: Instance | None = None,
    ) -> None:
        """Take a plan note of if it is the best of its degrees, by more than rounding."""
        if step_seconds > self.cutoff_seconds * (1.0 + PROOF_TOLERANCE):
            return
        group = self.groups[index]
        known = self.best.get(group)
        if known is None or step_seconds < known.step_seconds * (1.0 - FINE_ROUNDING):
            self.best[group] = Best(
                index=index, step_seconds=step_seconds, assignment=assignment, instance=instance
            )

    def pop(self) -> tuple[float, int] | None:
        """Return the least key that may still matter with its configuration, None if none does."""
        limit = self.limit_seconds() * (1.0 - PROOF_TOLERANCE)
        while (head := self._head()) is not None:
            key, index = head
            if key >= limit:
                return None
            if self._heap and self._heap[0] == head:
                heapq.heappop(self._heap)
            else:
                self._quick.take(1, below=limit)
            if key < self.limit_of(index) * (1.0 - PROOF_TOLERANCE):
                return head
        return None

    def _head(self) -> tuple[float, int] | None:
        """Return the least key that waits; what was taken, or waits under a higher key, goes."""
        while self._heap and self._is_stale(*self._heap[0]):
            heapq.heappop(self._heap)
        quick = self._quick_head()
        if quick is None:
            return self._heap[0] if self._heap else None
        return min(quick, self._heap[0]) if self._heap else quick

    def _quick_head(self) -> tuple[float, int] | None:
        """Return the least key that nobody has looked into, with no rough one below it."""
        while True:
            quick, rough = self._quick.head(), self._rough.head()
            least = float("inf") if quick is None else quick[0]
            if rough is None or rough[0] >= min(least, self.limit_seconds()):
                return rough if quick is None else quick
            self._refine_rough()

    def _refine_rough(self) -> None:
        """Replace the least rough keys below the limit by quick ones."""
        assert self.refine is not None  # noqa: S101 - else nothing is rough
        some = self._rough.take(ROWS_AT_ONCE, below=self.limit_seconds())
        found, quick = map(np.array, self.refine(some))
        is_rough = self.stages[found] == Stage.ROUGH
        found, quick = found[is_rough], quick[is_rough]
        keys = np.maximum([self.keys[index] for index in found.tolist()], quick)
        self._raise(found.tolist(), keys)
        self.stages[found] = Stage.QUICK
        matters = np.isfinite(keys)
        self._quick.join(keys[matters], found[matters])

    def _raise(self, indices: Sequence[int], keys: Floats) -> None:
        for index, key in zip(indices, keys.tolist(), strict=True):
            self.keys[index] = key

    def _is_stale(self, key: float, index: int) -> bool:
        """Return whether a configuration was taken, or waits under a higher key, since."""
        if index in self._taken:
            self._taken.discard(index)
            return True
        return key < self.keys[index]

    def pop_quick(self, most: int) -> list[int]:
        """Return up to `most` further configurations that nobody has looked into, in key order."""
        limit = self.limit_seconds()
        found: list[int] = []
        while len(found) < most and (head := self._quick_head()) is not None and head[0] < limit:
            rough = self._rough.head()
            up_to = limit if rough is None else rough[0]
            found += self._quick.take(most - len(found), below=limit, up_to=up_to)
        return found

    def quick_of(self, indices: Iterable[int]) -> list[int]:
        """Return those that nobody has looked into, with keys below the limit."""
        most, asked = self.limit_seconds(), np.array(list(indices), dtype=np.int64)
        unseen = asked[self.stages[asked] == Stage.QUICK].tolist()
        return [index for index in unseen if self.keys[index] < most]

    def screen(self, indices: Sequence[int], bounds: Floats) -> list[int]:
        """Take note of bounds with memory; return those that may matter, which wait under them."""
        self.stages[np.array(indices, dtype=np.int64)] = Stage.SCREENED
        limits, matters = self.limits_of(indices), []
        for index, bound, limit in zip(indices, bounds.tolist(), limits, strict=True):
            self.push(index, bound)
            if self.keys[index] < limit:
                matters.append(index)
        return matters

    def next_indices(self, count: int, stage: Stage) -> list[int]:
        """Return up to `count` waiting ones that were looked into up to `stage`, in key order."""
        indices = np.array([index for _, index in self._heap], dtype=np.int64)
        is_there = (self.stages[indices] == stage).tolist()
        waiting = (one for one, is_so in zip(self._heap, is_there, strict=True) if is_so)
        return [index for _, index in heapq.nsmallest(count, waiting)]

    def push(self, index: int, key: float) -> None:
        """Let a configuration wait again under a key that is no lower than before."""
        self.keys[index] = max(self.keys[index], key)
        if math.isfinite(self.keys[index]):
            heapq.heappush(self._heap, (self.keys[index], index))

    def take(self, index: int) -> None:
        """Let a configuration that was pushed be looked into out of turn: it no longer waits."""
        self._taken.add(index)

    def wait(self, index: int, key: float) -> None:
        """Let a configuration that took too long wait until all others are looked into."""
        self.keys[index] = max(self.keys[index], key)
        self.waiting.append(index)

    def next_key(self) -> float:
        """Return the least key in the heap, inf without any."""
        head = self._head()
        return float("inf") if head is None else head[0]

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

    def close(self, index: int, key: float) -> None:
        """Take note that no plan of a configuration that was left open is below a key."""
        self.keys[index] = max(self.keys[index], key)
        self.left_open = [other for other in self.left_open if other != index]

    def lower_bound(self) -> float:
        """Return what no plan can beat: the least key that waits or is open, or the best plan."""
        return min(self.least_left(), self.incumbent_seconds())

    @property
    def is_exhausted(self) -> bool:
        """Return whether nothing that waits or was left open can still matter."""
        return self.least_left() >= self.limit_seconds() * (1.0 - PROOF_TOLERANCE)

    def least_left(self) -> float:
        """Return the least key that waits or is open, inf where none does."""
        others = [i for i in (*self.left_open, *self.waiting) if self.limit_of(i) > 0.0]
        left = min((self.keys[index] for index in others), default=float("inf"))
        return min(self.next_key(), left)


@dataclass(slots=True, kw_only=True)
class State:
    """One search, by configuration where it is about one.

    `branchings` are how far each was branched on, None where it has too many loads for that or
    branching can say no more; `turns` how many turns it had; `refused` are those whose best relaxed
    plan does not fit; `branched` are those that were branched on, `relaxed` with cuts at the least
    that they add, `programmed` those for which a program was solved; `settled` are the best plans
    of `groups` that were told,
    and all below `enough_seconds` is to be known. `price_lists` are what layers cost under some.
    `screens` is how many screens had a limit, `dived_to` the least bound looked into as soon as it
    was screened.
    """

    problem: Problem
    configurations: Configurations
    pricing: Pricing
    frontier: Frontier
    solver: SolverName
    started: float
    choices: tuple[Choice, ...]
    edges: tuple[Choice, ...]
    not_searched: tuple[str, ...] = ()
    groups: Groups = ONE_GROUP
    enough_seconds: float = float("inf")
    branchings: dict[int, Branching | None] = field(default_factory=dict)
    turns: dict[int, int] = field(default_factory=dict)
    branched: set[int] = field(default_factory=set)
    relaxed: set[int] = field(default_factory=set)
    programmed: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    settled: dict[int, Group] = field(default_factory=dict)
    price_lists: dict[int, PriceList] = field(default_factory=dict)
    screens: int = 0
    dived_to: float = float("inf")
    milp_count: int = 0

    def is_close_enough(self, key: float) -> bool:
        """Return whether no plan, from `key` or left, is better by more than the job accepts."""
        if min(key, self.frontier.least_left()) >= self.enough_seconds:
            return True
        accepted = self.problem.job.limits.accepted_gap_ratio
        if accepted <= 0.0 or not self.frontier.best:
            return False
        least = min(key, self.frontier.least_left())
        return least >= self.frontier.limit_seconds() * (1.0 - accepted)

    def effort(self, units: float) -> Effort:
        """Return an effort of so much work within the job's limit of time."""
        return Effort(most=units, deadline=self.deadline)

    @property
    def deadline(self) -> float:
        """Return when the job's limit is over (of `time.perf_counter`)."""
        return self.started + self.problem.job.limits.solver_seconds

    @property
    def seconds_left(self) -> float:
        """Return the seconds until the job's limit."""
        return self.deadline - time.perf_counter()

    def is_past(self, share_ratio: float) -> bool:
        """Return whether such a share of the job's limit has passed."""
        return self.seconds_left < (1.0 - share_ratio) * self.problem.job.limits.solver_seconds
