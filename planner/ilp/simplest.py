"""Simplest: of all plans within a tolerance of the fastest, the one of least complexity.

Complexity counts techniques (`planner.space.complexity`): those of the degrees, known before a
configuration is looked into, and those of its layers. Of plans of equal complexity the fastest is
wanted. Configurations are looked into whose bounds leave them a chance:

1. Layers all alike and stages spread evenly: every such plan is priced.
2. Others have one technique more, at least. Programs with row C11 (`planner.ilp.formulation`) are
   asked for the fastest plan of one technique, of two and so on, up to the simplest that is known:
   the fewer, the sooner a program ends.

What programs leave open within their limits is told by the bounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from planner.cost.configuration import Booleans, Choice, Floats, Integers
from planner.cost.step import predict
from planner.hardware import ClusterHardware
from planner.ilp.canonical_plan import tidied
from planner.ilp.engine import Effort
from planner.ilp.formulation import Few, Moments
from planner.ilp.instance import Assignment, Instance, evaluate_uniform
from planner.ilp.lagrangian_bound import objective_bounds
from planner.ilp.milp import (
    SolverName,
    Status,
    Within,
    default_solver,
    optimise_few,
    strategy_of,
)
from planner.ilp.pricing import PricedSpace
from planner.ilp.problem import Group, Problem
from planner.ilp.settings import PROOF_TOLERANCE, SIMPLE_TERMS, SIMPLE_UNITS
from planner.schema.job import Job
from planner.schema.plan import Prediction
from planner.schema.strategy import Offload, Strategy
from planner.space.complexity import complexity, configuration_complexity, even_counts
from planner.workload.layer import ModelWorkload

Price = Callable[[ModelWorkload, ClusterHardware, Job, Strategy], Prediction]


@dataclass(frozen=True, slots=True, kw_only=True)
class Simple:
    """A plan with its complexity; `complexity_bound` is what no plan within the limit is below.

    `is_fastest` says that no plan of its complexity is faster.
    """

    strategy: Strategy
    step_seconds: float
    complexity: int
    complexity_bound: int
    is_fastest: bool

    @property
    def is_proven(self) -> bool:
        """Return whether no plan is simpler, and none as simple is faster."""
        return self.is_fastest and self.complexity_bound >= self.complexity


def simplest(
    problems: Sequence[Problem],
    *,
    fastest: Group,
    limit_seconds: float,
    seconds: float,
    solver: SolverName | None = None,
    price: Price = predict,
) -> Simple:
    """Return the simplest plan of several parts of a space whose step is within a limit.

    `fastest` is what it is compared with first. Of equally simple plans one that is faster by no
    more than the gap that the job accepts is not looked for. Plans count by what they are priced
    at, while bounds and programs know of closed forms alone.

    Raises:
        SolverError: if the solver fails.
    """
    if seconds <= 0.0:
        return Simple(
            strategy=fastest.strategy,
            step_seconds=fastest.step_seconds,
            complexity=complexity(fastest.strategy),
            complexity_bound=0,
            is_fastest=False,
        )
    quest = _Quest(
        limit_seconds=limit_seconds,
        accepted_ratio=min(p.job.limits.accepted_gap_ratio for p in problems),
        best=_Best(
            complexity=complexity(fastest.strategy),
            step_seconds=fastest.step_seconds,
            strategy=fastest.strategy,
        ),
        effort=Effort(most=SIMPLE_UNITS, deadline=time.perf_counter() + seconds),
        solver=solver or default_solver(),
        price=price,
    )
    parts = [part for problem in problems if (part := _part(problem)) is not None]
    for part in parts:
        _price_uniform(part, quest)
    _ask_all(parts, quest)
    best = quest.best
    return Simple(
        strategy=best.strategy,
        step_seconds=best.step_seconds,
        complexity=best.complexity,
        complexity_bound=min([best.complexity, *quest.open_complexities]),
        is_fastest=not quest.is_faster_open,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Best:
    complexity: int
    step_seconds: float
    strategy: Strategy


@dataclass(slots=True, kw_only=True)
class _Quest:
    """What is known of the simplest plan, what was left open, and what may still be done."""

    limit_seconds: float
    accepted_ratio: float
    best: _Best
    effort: Effort
    solver: SolverName
    price: Price
    open_complexities: list[int] = field(default_factory=list)
    is_faster_open: bool = False

    @property
    def seconds_left(self) -> float:
        """Return the seconds until the time is over."""
        return self.effort.deadline - time.perf_counter()

    def leave_open(self, complexity: int) -> None:
        """Take note that there may be a better plan of a complexity."""
        if complexity < self.best.complexity:
            self.open_complexities.append(complexity)
        else:
            self.is_faster_open = True

    def limit_of(self, complexity: int) -> float:
        """Return the step that a plan of a complexity must be below to be the better one."""
        if complexity > self.best.complexity:
            return 0.0
        if complexity < self.best.complexity:
            return self.limit_seconds * (1.0 + PROOF_TOLERANCE)
        return self.best.step_seconds * (1.0 - PROOF_TOLERANCE)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """Configurations of a problem; `own` is what their degrees count, [configurations].

    Most count more than the simplest plan that is found: `keys` bound the steps of those that were
    asked for, simplest first.
    """

    problem: Problem
    space: PricedSpace
    own: Integers
    keys: Floats
    bounded: dict[int, list[int]] = field(default_factory=dict)

    @cached_property
    def degree_counts(self) -> Integers:
        """Return how many techniques degrees count, the fewest first."""
        return np.unique(self.own)

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Return the choices of blocks."""
        return self.space.choices

    @property
    def edges(self) -> tuple[Choice, ...]:
        """Return the choices of the ends."""
        return self.space.edges

    def waiting(self, quest: _Quest, own: int, counted: int) -> Iterator[int]:
        """Yield those of `own` techniques that may have a better plan of so many in all.

        Those of the least bound come first.
        """
        if quest.limit_of(counted) > 0.0:
            for index in self._in_order(own, quest):
                if self.keys[index] < quest.limit_of(counted):
                    yield index

    def _in_order(self, own: int, quest: _Quest) -> list[int]:
        """Return those whose degrees count so much and that may matter, the least bound first."""
        if own not in self.bounded:
            limit, pricing = quest.limit_of(own), self.space.pricing
            near = np.flatnonzero((self.own == own) & (self.space.bounds < limit))
            if self.space.is_large:
                self.keys[near] = pricing.quick_bounds(near.tolist())
                near = near[self.keys[near] < limit]
            if len(near):
                limits = np.full(len(near), limit).tolist()
                self.keys[near] = pricing.memory_bounds(near.tolist(), limit_seconds=limits)
            self.bounded[own] = near[np.argsort(self.keys[near], kind="stable")].tolist()
        return self.bounded[own]

    def cuts(self, index: int) -> tuple[int, ...]:
        """Return where the chain is cut if it is spread evenly."""
        row = self.space.configurations.row(index)
        count = self.problem.graph.block_count
        each = even_counts(count, row.pipeline_parallel_degree * row.virtual_pipeline_degree)
        return (0, *np.cumsum(each).tolist())

    @cached_property
    def ends(self) -> Integers:
        """Return the choice of the ends that goes with each of blocks, [choices]."""
        places = {choice: place for place, choice in enumerate(self.edges)}
        return np.array([places[_end_like(choice)] for choice in self.choices])

    def instance(self, index: int, most_offloaded: int) -> Instance:
        """Return all choices that offload no more than some kinds of state."""
        return self.space.pricing.instance_of_choices(
            index,
            _offloading(self.choices, most_offloaded),
            _offloading(self.edges, most_offloaded),
        )

    def has_choices(self, most_offloaded: int) -> bool:
        """Return whether blocks and ends have a choice that offloads no more kinds of state."""
        both = (self.choices, self.edges)
        return all(_offloading(each, most_offloaded).any() for each in both)

    def choices_of(self, instance: Instance) -> list[list[Choice]]:
        """Return the choices of every kind."""
        return [
            [(self.choices if kind.pinned_stage is None else self.edges)[s] for s in kind.choice]
            for kind in instance.kinds
        ]

    def strategy(self, index: int, instance: Instance, assignment: Assignment) -> Strategy:
        """Return the strategy that an assignment stands for."""
        row = self.space.configurations.row(index)
        return strategy_of(
            instance,
            assignment,
            configuration=row,
            choices=self.choices,
            edges=self.edges,
            device_groups=self.problem.hardware.stage_groups(
                row.device_order, pipeline_parallel_degree=row.pipeline_parallel_degree
            ),
        )

    def priced(self, strategy: Strategy, price: Price) -> Prediction:
        """Return what the cost model says of it."""
        problem = self.problem
        return price(problem.workload, problem.hardware, problem.job, strategy)


def _end_like(choice: Choice) -> Choice:
    """Return the choice of an end that is as a block's."""
    kept = tuple(state for state in choice.offload if state is not Offload.ACTIVATIONS)
    return Choice(zero_stage=choice.zero_stage, offload=kept)


def _offloading(choices: Sequence[Choice], most: int) -> Booleans:
    return np.array([len(choice.offload) <= most for choice in choices])


def _part(problem: Problem) -> _Part | None:
    """Return the configurations of a problem, None without any."""
    space = problem.space or PricedSpace(problem)
    if not len(space.configurations) or not space.choices or not space.edges:
        return None
    return _Part(
        problem=problem,
        space=space,
        own=configuration_complexity(space.configurations),
        keys=np.full(len(space.configurations), np.inf),
    )


def _price_uniform(part: _Part, quest: _Quest) -> None:
    """Take the best plan whose layers are all alike, in stages spread evenly."""
    more = min(len(choice.offload) for choice in part.choices)
    for own in part.degree_counts.tolist():
        for index in part.waiting(quest, own, own + more):
            if quest.effort.is_over:
                quest.open_complexities.append(own)
                return
            _price_choices(part, quest, index)


def _price_choices(part: _Part, quest: _Quest, index: int) -> None:
    """Take the best plan of a configuration whose layers are all alike, if it is better."""
    instance, cuts = part.instance(index, len(Offload)), part.cuts(index)
    places = np.array(instance.kinds[instance.free_kinds[0]].choice)
    priced = evaluate_uniform(instance, cuts, ends=part.ends[places])
    more = np.array([len(part.choices[place].offload) for place in places])
    counted = part.own[index] + more
    for column in np.lexsort((priced.step_seconds, counted)).tolist():
        if priced.step_seconds[column] >= quest.limit_of(int(counted[column])):
            continue
        if priced.fits[column]:
            assignment = _uniform(instance, cuts, column, int(part.ends[places[column]]))
            if _offer(part, quest, part.strategy(index, instance, assignment)):
                return


def _uniform(instance: Instance, cuts: tuple[int, ...], column: int, end: int) -> Assignment:
    """Return the assignment that has one choice of blocks, and one of the ends."""
    counts = []
    loads = np.array([instance.prefix_counts[cut] for cut in cuts])
    held = np.diff(loads, axis=0)
    for k, kind in enumerate(instance.kinds):
        own = np.zeros((instance.stage_count, len(kind.choice)), dtype=np.int64)
        if kind.pinned_stage is None:
            np.add.at(own[:, column], np.array(instance.holders), held[:, k])
        else:
            own[kind.pinned_stage, end] = 1
        counts.append(own)
    return Assignment(counts=tuple(counts), cuts=cuts)


def _offer(part: _Part, quest: _Quest, strategy: Strategy) -> bool:
    """Take a plan note of if it fits and is better.

    Return whether what bounds say of it holds: it fits, and takes no longer than its closed form.
    """
    prediction = part.priced(strategy, quest.price)
    if not prediction.fits:
        return False
    counted, step = complexity(strategy), prediction.step_seconds.p50
    if step < quest.limit_of(counted):
        quest.best = _Best(complexity=counted, step_seconds=step, strategy=strategy)
        return True
    return step <= prediction.closed_form_seconds * (1.0 + PROOF_TOLERANCE)


def _ask_all(parts: Sequence[_Part], quest: _Quest) -> None:
    """Ask for plans of one technique in their layers or cuts, then of one more, while it is better.

    A simpler plan that comes of what was left open is not made faster.
    """
    counted = 0
    for counted, part, own in _in_turn(parts, quest):
        if quest.seconds_left <= 0.0:
            quest.open_complexities.append(counted)
            quest.is_faster_open = True
            return
        for index in part.waiting(quest, own, counted):
            if not _ask(part, quest, index, counted):
                quest.leave_open(counted)
    quest.is_faster_open |= quest.best.complexity < counted


def _in_turn(parts: Sequence[_Part], quest: _Quest) -> Iterator[tuple[int, _Part, int]]:
    """Yield how many techniques to ask for, up to the best plan's, with parts and those of degrees.

    Degrees of fewer techniques come first, and leave more to layers.
    """
    counted = min((int(part.own.min()) for part in parts), default=0)
    while counted < quest.best.complexity:
        counted += 1
        for part in parts:
            for own in part.degree_counts[part.degree_counts < counted].tolist():
                yield counted, part, own


def _ask(part: _Part, quest: _Quest, index: int, counted: int) -> bool:
    """Offer the fastest plan of at most so many techniques that is better than the best.

    Stages are spread evenly, or by one technique. All layers alike are known. What is faster by no
    more than the accepted gap is not looked for. Return whether there is no other.
    """
    if quest.seconds_left <= 0.0:
        return False
    most, limit = counted - int(part.own[index]), quest.limit_of(counted)
    is_faster = counted == quest.best.complexity
    if is_faster and part.keys[index] >= limit * (1.0 - quest.accepted_ratio):
        return False
    if not part.has_choices(most - 1):
        return True
    instance = part.instance(index, most - 1)
    bounds = objective_bounds(instance, cutoff_seconds=limit)
    if bounds is None or bounds.step_seconds() >= limit:
        return True
    asked = _Asked(part=part, quest=quest, index=index, instance=instance)
    is_even_known = asked.solve(most, part.cuts(index), limit=limit)
    limit = quest.limit_of(counted)
    if bounds.step_seconds() >= limit or len(part.cuts(index)) == 2:  # one stage is never uneven
        return is_even_known
    return asked.solve(most - 1, None, limit=limit) and is_even_known


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A configuration that is asked for plans."""

    part: _Part
    quest: _Quest
    index: int
    instance: Instance

    def solve(self, most: int, cuts: tuple[int, ...] | None, *, limit: float) -> bool:
        """Offer what a program finds below a limit; return whether that is the best, or none is."""
        part, quest, instance = self.part, self.quest, self.instance
        if quest.effort.is_over:
            return False
        is_apart = instance.least_blocks > 1 and not instance.is_uniform
        optimum = optimise_few(
            instance,
            Few(
                choices=part.choices_of(instance),
                most=most,
                cuts=cuts,
                moments=Moments.of(part.space.configurations.row(self.index)) if is_apart else None,
            ),
            cutoff_seconds=limit,
            solver=quest.solver,
            within=Within(quest.seconds_left, terms=SIMPLE_TERMS, effort=quest.effort),
        )
        if optimum.assignment is None:
            return optimum.status is Status.INFEASIBLE
        found = optimum.assignment if cuts is None else replace(optimum.assignment, cuts=cuts)
        is_taken = _offer(part, quest, self._canonical(found))
        return is_taken and optimum.status is Status.OPTIMAL

    def _canonical(self, found: Assignment) -> Strategy:
        """Return the strategy of an assignment, in its canonical form if that is as simple."""
        part = self.part
        canonical = tidied(
            self.instance,
            found,
            choices=(part.choices, part.edges),
            solver=self.quest.solver,
            seconds=self.quest.seconds_left,
        )
        own, tidy = (part.strategy(self.index, self.instance, each) for each in (found, canonical))
        is_as_simple = complexity(tidy) <= complexity(own)
        return tidy if is_as_simple and part.priced(tidy, predict).fits else own
