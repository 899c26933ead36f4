"""Frontier: the configurations of a search that are left, and what it knows besides.

Configurations wait in queues under a key, the best lower bound known of each, and the least key is
next. A key only ever rises: first the bound without memory, then the one with memory for many at
once, then that of the configuration alone, then what a solve below a cutoff has proven. What is
best is kept by group of degrees, so that several different plans can be asked for at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from planner.cost.configuration import Configurations, Floats
from planner.ilp.branch_and_bound import Branching
from planner.ilp.instance import Assignment, Instance
from planner.ilp.pricing import PricedSpace, Pricing
from planner.ilp.problem import ONE_GROUP, Effort, Group, Groups, Problem
from planner.ilp.settings import FINE_ROUNDING, PROOF_TOLERANCE

Refinements = NDArray[np.int8]


class Refinement(IntEnum):
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


class Queue(IntEnum):
    """When a configuration is looked into: in turn, once no other is left, or not again.

    The key of one that was given up counts in the lower bound alone.
    """

    NOW = 0
    LAST = 1
    GIVEN_UP = 2


@dataclass(slots=True, kw_only=True)
class Frontier:
    """Keys of all configurations, and the best plans of `group_count` groups within a cutoff.

    `groups` says which configurations have the same degrees, `keys` are bounds of their steps, both
    [configurations]. `plans` are the best known by configuration, those of earlier searches to
    begin with. `queues` [queues, configurations] are the keys of those that wait, inf elsewhere.
    """

    keys: Floats
    groups: Sequence[int]
    cutoff_seconds: float = float("inf")
    group_count: int = 1
    plans: dict[int, Best] = field(default_factory=dict)
    refinements: Refinements = field(init=False)
    best: dict[int, Best] = field(default_factory=dict)
    queues: Floats = field(init=False)

    def __post_init__(self) -> None:
        """Let all wait in turn."""
        self.keys = np.array(self.keys, dtype=np.float64)
        self.refinements = np.full(len(self.keys), Refinement.QUICK, dtype=np.int8)
        self.queues = np.full((len(Queue), len(self.keys)), np.inf)
        self.queues[Queue.NOW] = self.keys
        for known in self.plans.values():
            if math.isfinite(self.keys[known.index]):
                self._take_note(known)

    @property
    def open_count(self) -> int:
        """Return how many configurations wait in turn and may still matter."""
        return int(np.count_nonzero(self.queues[Queue.NOW] < self.limit_seconds()))

    def ranked(self) -> list[Best]:
        """Return the best plans of different degrees, as many as were asked for, best first."""
        return self._in_order()[: self.group_count]

    def _in_order(self) -> list[Best]:
        return sorted(self.best.values(), key=lambda best: (best.step_seconds, best.index))

    def incumbent_seconds(self) -> float:
        """Return the step of the best plan, inf without any."""
        return min((best.step_seconds for best in self.best.values()), default=float("inf"))

    def settled(self, key: float) -> list[Best]:
        """Return the best plans that nothing left of their groups beats, best first.

        Whatever waits in turn has this key at least.
        """
        others = self.queues[Queue.LAST :].min(axis=0)
        least: dict[int, float] = {}
        for index in np.flatnonzero(np.isfinite(others)).tolist():
            group = self.groups[index]
            least[group] = min(float(others[index]), least.get(group, key))
        below = 1.0 - PROOF_TOLERANCE
        return [
            best
            for best in self._in_order()
            if best.step_seconds * below <= least.get(self.groups[best.index], key)
        ]

    def limit_seconds(self) -> float:
        """Return the step that a plan must be below to matter at all."""
        ranked = self.ranked()
        last = ranked[-1].step_seconds if len(ranked) == self.group_count else float("inf")
        return min(last, self.cutoff_seconds)

    def limit_of(self, index: int) -> float:
        """Return the step that a plan of this configuration must be below to matter."""
        return self.limits_of([index])[0]

    def limits_of(self, indices: Sequence[int]) -> list[float]:
        """Return the same for many configurations."""
        limit = self.limit_seconds()
        own = {group: min(limit, best.step_seconds) for group, best in self.best.items()}
        return [own.get(self.groups[index], limit) for index in indices]

    def matters(self, index: int) -> bool:
        """Return whether a plan of a configuration at its key would be better than those known."""
        return bool(self.keys[index] < self.limit_of(index) * (1.0 - PROOF_TOLERANCE))

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

    def pop(self, queue: Queue = Queue.NOW) -> tuple[float, int] | None:
        """Return the least key of a queue that may still matter with its configuration.

        It no longer waits. None where none matters.
        """
        limit = self.limit_seconds() * (1.0 - PROOF_TOLERANCE)
        while True:
            index = int(self.queues[queue].argmin())
            if not self.queues[queue, index] < limit:
                return None
            self.dequeue(index)
            if self.matters(index):
                return float(self.keys[index]), index

    def pop_quick(self, most: int) -> list[int]:
        """Return up to `most` further configurations that nobody has looked into, in key order."""
        unseen = np.where(self.refinements == Refinement.QUICK, self.queues[Queue.NOW], np.inf)
        places = np.flatnonzero(unseen < self.limit_seconds())
        found: list[int] = places[np.argsort(unseen[places], kind="stable")][:most].tolist()
        self.queues[Queue.NOW, found] = np.inf
        return found

    def screen(self, indices: Sequence[int], bounds: Floats) -> list[int]:
        """Take note of bounds with memory; return those that may matter, which wait under them."""
        places = np.array(indices, dtype=np.int64)
        self.refinements[places] = Refinement.SCREENED
        self.keys[places] = self.queues[Queue.NOW, places] = np.maximum(self.keys[places], bounds)
        found: list[int] = places[self.keys[places] < self.limits_of(indices)].tolist()
        return found

    def next_indices(self, count: int, refinement: Refinement) -> list[int]:
        """Return up to `count` waiting ones of so much refinement, in key order."""
        keys = np.where(self.refinements == refinement, self.queues[Queue.NOW], np.inf)
        places = np.flatnonzero(np.isfinite(keys))
        found: list[int] = places[np.argsort(keys[places], kind="stable")][:count].tolist()
        return found

    def push(self, index: int, key: float = 0.0, queue: Queue = Queue.NOW) -> None:
        """Let a configuration wait in a queue, under a key if that is above the one before."""
        self.close(index, key)
        self.queues[queue, index] = self.keys[index]

    def dequeue(self, index: int) -> None:
        """Let a configuration no longer wait."""
        self.queues[:, index] = np.inf

    def close(self, index: int, key: float) -> None:
        """Take note that no plan of a configuration is below a key; it no longer waits."""
        self.keys[index] = max(self.keys[index], key)
        self.dequeue(index)

    def least_key(self, queue: Queue = Queue.NOW) -> float:
        """Return the least key that waits in a queue, inf without any."""
        return float(self.queues[queue].min())

    def least_left(self) -> float:
        """Return the least key that waits or was given up, inf without any."""
        return float(self.queues.min())

    def lower_bound(self) -> float:
        """Return what no plan can beat: the least key that is left, or the best plan."""
        return min(self.least_left(), self.incumbent_seconds())

    @property
    def is_exhausted(self) -> bool:
        """Return whether nothing that waits or was given up can still matter."""
        return self.least_left() >= self.limit_seconds() * (1.0 - PROOF_TOLERANCE)


@dataclass(slots=True, kw_only=True)
class State:
    """One search, by configuration where it is about one.

    - `branchings`: what is left to branch on, None where there are too many loads for that or where
      branching can say no more; `branched` are those that were branched on;
    - `turns`: how many turns of branching or of a program each had, less one;
    - `declined`: those that need a program, with the limit at that time: below it they may be
      branched on again; `programmed` are those for which one was solved;
    - `refused`: those whose best relaxed plan does not fit;
    - `settled`: the best plan of each group that was reported; the search has to be complete up to
      `enough_seconds`;
    - `work`: what was done so far, in units, by and large; `screens`: how many screens had a limit;
      `dived_to`: the least bound that was looked into as soon as it was screened.
    """

    problem: Problem
    space: PricedSpace
    frontier: Frontier
    started: float
    groups: Groups = ONE_GROUP
    enough_seconds: float = float("inf")
    leaves_programs: bool = False
    branchings: dict[int, Branching | None] = field(default_factory=dict)
    turns: dict[int, int] = field(default_factory=dict)
    branched: set[int] = field(default_factory=set)
    declined: dict[int, float] = field(default_factory=dict)
    programmed: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    settled: dict[int, Group] = field(default_factory=dict)
    work: Effort = field(default_factory=Effort)
    screens: int = 0
    dived_to: float = float("inf")
    milp_count: int = 0

    @property
    def pricing(self) -> Pricing:
        """Return the prices of all configurations."""
        return self.space.pricing

    @property
    def configurations(self) -> Configurations:
        """Return all configurations."""
        return self.space.configurations

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
        return Effort(most=units, deadline=self.deadline, whole=self.work)

    @property
    def deadline(self) -> float:
        """Return when the job's limit is over (of `time.perf_counter`)."""
        return self.started + self.problem.job.limits.solver_seconds

    @property
    def seconds_left(self) -> float:
        """Return the seconds until the job's limit."""
        return self.deadline - time.perf_counter()

    def is_past(self, share_ratio: float) -> bool:
        """Return whether such a share of the work is done that the job's limit is enough for.

        Work is counted, so that no answer that is not cut short depends on how fast the machine is.
        """
        return self.work.spent > share_ratio * 1e6 * self.problem.job.limits.solver_seconds
