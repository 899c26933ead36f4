"""Frontier: the open configurations of a search, and what it knows besides.

Frontier: the configurations of a search by the best lower bound known of each.

They wait in a heap, the least key first; those that nobody has looked into, of which a search has
them by the hundred thousand, in an array. A key only ever rises: first the bound without memory,
then the one with memory for many at once, then that of the configuration alone, then what a solve
below a cutoff has proven. What is best is kept by group of degrees, so that several different plans
can be asked for at once.

State: what a search knows besides the keys of its frontier.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Iterable, Sequence
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
)

Stages = NDArray[np.int8]


class Stage(IntEnum):
    """How far a configuration has been looked into."""

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


def _is_better(one: Best, known: Best | None) -> bool:
    """Return whether a plan is faster than what is known, by more than rounding."""
    return known is None or one.step_seconds < known.step_seconds * (1.0 - FINE_ROUNDING)


@dataclass(slots=True, kw_only=True)
class Frontier:
    """Keys of all configurations, and the best plans of `group_count` groups within a cutoff.

    `groups` says which configurations have the same degrees, [configurations]. `plans` are the best
    known by configuration, those of earlier searches to begin with. `_unseen` are those that nobody
    has looked into, the least key first; `stages` says which of them still wait.
    """

    keys: list[float]
    groups: Sequence[int]
    cutoff_seconds: float = float("inf")
    group_count: int = 1
    plans: dict[int, Best] = field(default_factory=dict)
    stages: Stages = field(init=False)
    best: dict[int, Best] = field(default_factory=dict)
    left_open: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    _taken: set[int] = field(default_factory=set)
    _heap: list[tuple[float, int]] = field(default_factory=list)
    _unseen: Integers = field(init=False)

    def __post_init__(self) -> None:
        """Order the keys."""
        keys = np.array(self.keys)
        self.stages = np.full(len(keys), Stage.QUICK, dtype=np.int8)
        self._unseen = np.argsort(keys, kind="stable")[: np.count_nonzero(np.isfinite(keys))]
        for known in self.plans.values():
            if math.isfinite(self.keys[known.index]):
                self._take_note(known)

    @property
    def open_count(self) -> int:
        """Return how many configurations wait and may still matter, each of them once."""
        waits = np.zeros(len(self.keys), dtype=bool)
        waits[[index for key, index in self._heap if key >= self.keys[index]]] = True
        waits[list(self._taken)] = False
        waits[self._unseen[self.stages[self._unseen] == Stage.QUICK]] = True
        return int(np.count_nonzero(np.array(self.keys)[waits] < self.limit_seconds()))

    def ranked(self) -> list[Best]:
        """Return the best plans of different degrees, as many as were asked for, best first."""
        order = sorted(self.best.values(), key=lambda best: (best.step_seconds, best.index))
        return order[: self.group_count]

    def incumbent_seconds(self) -> float:
        """Return the step of the best plan, inf without any."""
        return min((best.step_seconds for best in self.best.values()), default=float("inf"))

    def settled(self, key: float) -> list[Best]:
        """Return the best plans that nothing left of their groups beats, best first.

        Whatever waits in the heap has this key at least.
        """
        least: dict[int, float] = {}
        for index in (*self.left_open, *self.waiting):
            group = self.groups[index]
            least[group] = min(self.keys[index], least.get(group, key))
        order = sorted(self.best.items(), key=lambda item: (item[1].step_seconds, item[1].index))
        below = 1.0 - PROOF_TOLERANCE
        return [b for group, b in order if b.step_seconds * below <= least.get(group, key)]

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

    def offer(
        self,
        index: int,
        step_seconds: float,
        assignment: Assignment,
        instance: Instance | None = None,
    ) -> None:
        """Take a plan note of if it is the best of its degrees, by more than rounding."""
        best = Best(
            index=index, step_seconds=step_seconds, assignment=assignment, instance=instance
        )
        if _is_better(best, self.plans.get(index)):
            self.plans[index] = best
        self._take_note(best)

    def _take_note(self, best: Best) -> None:
        if best.step_seconds > self.cutoff_seconds * (1.0 + PROOF_TOLERANCE):
            return
        group = self.groups[best.index]
        if _is_better(best, self.best.get(group)):
            self.best[group] = best

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
                self._unseen = self._unseen[1:]
            if key < self.limit_of(index) * (1.0 - PROOF_TOLERANCE):
                return head
        return None

    def _head(self) -> tuple[float, int] | None:
        """Return the least key that waits; what was taken, or waits under a higher key, goes."""
        while self._heap and self._is_stale(*self._heap[0]):
            heapq.heappop(self._heap)
        first = self._first_unseen()
        if first is None:
            return self._heap[0] if self._heap else None
        return min(first, self._heap[0]) if self._heap else first

    def _first_unseen(self) -> tuple[float, int] | None:
        """Return the least key that nobody has looked into."""
        place = 0
        while place < len(self._unseen) and self.stages[self._unseen[place]] != Stage.QUICK:
            place += 1
        self._unseen = self._unseen[place:]
        if not len(self._unseen):
            return None
        index = int(self._unseen[0])
        return self.keys[index], index

    def _is_stale(self, key: float, index: int) -> bool:
        """Return whether a configuration was taken, or waits under a higher key, since."""
        if index in self._taken:
            self._taken.discard(index)
            return True
        return key < self.keys[index]

    def pop_quick(self, most: int) -> list[int]:
        """Return up to `most` further configurations that nobody has looked into, in key order."""
        unseen, limit = self._unseen[self.stages[self._unseen] == Stage.QUICK], self.limit_seconds()
        found = [index for index in unseen[:most].tolist() if self.keys[index] < limit]
        self._unseen = unseen[len(found) :]
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
        others = (*self.left_open, *self.waiting)
        left = min((self.keys[index] for index in others), default=float("inf"))
        return min(self.next_key(), left)


@dataclass(slots=True, kw_only=True)
class State:
    """One search, by configuration where it is about one.

    `branchings` are how far each was branched on, None where it has too many loads for that or
    branching can say no more, and `begun` those of an earlier search; `turns` how many turns each
    had; `refused` are those whose best relaxed plan does not fit; `branched` are those that were
    branched on, `declined` those that need a program, with the limit at which branching said so,
    and `programmed` those for which one was solved; `unfit` have no plan, however slow; `settled`
    are the best plans of `groups` that were told, and all below `enough_seconds` is to be known.
    `price_lists` are what layers cost under some. `screens` is how many screens had a limit,
    `dived_to` the least bound looked into as soon as it was screened.
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
    begun: dict[int, Branching] = field(default_factory=dict)
    branchings: dict[int, Branching | None] = field(default_factory=dict)
    turns: dict[int, int] = field(default_factory=dict)
    branched: set[int] = field(default_factory=set)
    declined: dict[int, float] = field(default_factory=dict)
    programmed: set[int] = field(default_factory=set)
    unfit: set[int] = field(default_factory=set)
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
