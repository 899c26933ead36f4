"""Simplest plan: of all plans within a tolerance of the fastest, the one of least complexity.

Complexity counts techniques (`planner.space.complexity`): those of the degrees, known before a
configuration is looked into, and those of its layers. Of plans of equal complexity the fastest is
wanted. Configurations are looked into whose bounds leave them a chance:

1. Layers all alike and stages spread evenly: every such plan is priced.
2. Others have one technique more, at least. Plans of so many techniques are looked for level by
   level, the fewest first, by branching on techniques: a set of plans is those without some
   techniques (`forbidden`) and with some others (`used`). The search's own engine gives a plan of
   the set, or says that none is below the limit. Where its plan has too many techniques, one with
   fewer lacks one of these: without the first, with the first and without the second, and so on.

Looks are short at first. What they leave open is looked into again, eight times as long, while
effort is left. What is open in the end the bounds tell.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

import numpy as np

from planner.cost.configuration import Booleans, Choice, Floats, Integers
from planner.cost.step import predict
from planner.hardware import ClusterHardware
from planner.ilp.branch_and_bound import branching_of
from planner.ilp.canonical_plan import tidied
from planner.ilp.construction_heuristic import filling_of_cuts, heuristic_assignment
from planner.ilp.incumbent import cut_anew
from planner.ilp.instance import Assignment, Instance, at_cuts, evaluate, fits, load_of_cuts
from planner.ilp.lagrangian_bound import objective_bounds
from planner.ilp.pricing import PricedSpace
from planner.ilp.problem import Effort, Group, Problem
from planner.ilp.settings import (
    PROOF_TOLERANCE,
    ROWS_AT_ONCE,
    SCREENED_AT_ONCE,
    SIMPLE_LOOK_UNITS,
    SIMPLE_UNITS_PER_SECOND,
    UNITS_PER_LOOK,
)
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
    price: Price = predict,
) -> Simple:
    """Return the simplest plan of several parts of a space whose step is within a limit.

    `fastest` is what it is compared with first. Of equally simple plans one that is faster by no
    more than the gap that the job accepts is not looked for. Plans count by what they are priced
    at, while bounds know of closed forms alone.
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
        effort=Effort(
            most=SIMPLE_UNITS_PER_SECOND * min(p.job.limits.solver_seconds for p in problems),
            deadline=time.perf_counter() + seconds,
        ),
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
    price: Price
    open_complexities: list[int] = field(default_factory=list)
    is_faster_open: bool = False
    is_cut_short: bool = False

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
        return self.best.step_seconds * (1.0 - max(self.accepted_ratio, PROOF_TOLERANCE))


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
            self._bound(own, quest)
        return self.bounded[own]

    def _bound(self, own: int, quest: _Quest) -> None:
        """Bound those of `own` techniques, and with them those of more, where they are not many.

        What the deadline leaves is not bounded at all.
        """
        limit = quest.limit_of(own)
        near = np.flatnonzero((self.own >= own) & (self.space.bounds() < limit))
        most = max(own, quest.best.complexity)
        if np.count_nonzero(self.own[near] <= most) > ROWS_AT_ONCE:
            most = own
        near = near[self.own[near] <= most]
        for block in np.array_split(near, -(-len(near) // SCREENED_AT_ONCE)) if len(near) else ():
            if quest.effort.is_late:
                self.keys[block] = 0.0
                continue
            limits = np.full(len(block), limit).tolist()
            bounds = self.space.pricing.memory_bounds(block.tolist(), limit_seconds=limits)
            self.keys[block] = bounds
        near = near[np.argsort(self.keys[near], kind="stable")]
        for counted in range(own, most + 1):
            self.bounded[counted] = near[self.own[near] == counted].tolist()

    def cuts(self, index: int) -> tuple[int, ...]:
        """Return where the chain is cut if it is spread evenly."""
        row = self.space.configurations.row(index)
        count = self.problem.graph.block_count
        each = even_counts(count, row.pipeline_parallel_degree * row.virtual_pipeline_degree)
        return (0, *np.cumsum(each).tolist())

    @cached_property
    def ends(self) -> Integers:
        """Return the choice of the ends that goes with each of blocks, [choices]."""
        places = {choice: place for place, choice in enumerate(self.space.edges)}
        return np.array([places[_end_like(choice)] for choice in self.space.choices])

    def techniques(self, index: int) -> tuple[Technique, ...]:
        """Return all that layers and stages of a configuration may have."""
        is_piped = len(self.cuts(index)) > 2
        return (*((_UNEVEN,) if is_piped else ()), *self._of_layers)

    @cached_property
    def _of_layers(self) -> tuple[Technique, ...]:
        used = frozenset[Technique]().union(*self._block_techniques, *self._end_techniques)
        return tuple(sorted(used, key=_order))

    @cached_property
    def _block_techniques(self) -> list[frozenset[Technique]]:
        return [_techniques(choice, is_block=True) for choice in self.space.choices]

    @cached_property
    def _end_techniques(self) -> list[frozenset[Technique]]:
        return [_techniques(choice, is_block=False) for choice in self.space.edges]

    def instance_of(self, index: int, allowed: frozenset[Technique]) -> Instance | None:
        """Return a configuration with what is allowed, None where that is no choice at all."""
        return self.space.pricing.instance_of_choices(
            index,
            np.array([used <= allowed for used in self._block_techniques]),
            np.array([used <= allowed for used in self._end_techniques]),
        )

    def techniques_of(
        self, index: int, instance: Instance, assignment: Assignment
    ) -> frozenset[Technique]:
        """Return what layers and stages of an assignment have."""
        used = set[Technique]()
        for kind, counts in zip(instance.kinds, assignment.counts, strict=True):
            own = self._block_techniques if kind.pinned_stage is None else self._end_techniques
            for place in np.flatnonzero(counts.sum(axis=0)).tolist():
                used |= own[kind.choice[place]]
        if tuple(assignment.cuts) != self.cuts(index):
            used.add(_UNEVEN)
        return frozenset(used)

    def priced(self, strategy: Strategy, price: Price) -> Prediction:
        """Return what the cost model says of it."""
        problem = self.problem
        return price(problem.workload, problem.hardware, problem.job, strategy)


def _end_like(choice: Choice) -> Choice:
    """Return the choice of an end that is as a block's."""
    kept = tuple(state for state in choice.offload if state is not Offload.ACTIVATIONS)
    return Choice(zero_stage=choice.zero_stage, offload=kept)


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
    more = min(len(choice.offload) for choice in part.space.choices)
    for own in part.degree_counts.tolist():
        for index in part.waiting(quest, own, own + more):
            if quest.effort.is_over:
                quest.open_complexities.append(own)
                return
            _price_choices(part, quest, index)


def _price_choices(part: _Part, quest: _Quest, index: int) -> None:
    """Take the best plan of a configuration whose layers are all alike, if it is better."""
    instance, cuts = part.space.pricing.instance_with_all(index), part.cuts(index)
    places = np.array(instance.kinds[instance.free_kinds[0]].choice)
    priced = _evaluate_uniform(instance, cuts, ends=part.ends[places])
    more = np.array([len(part.space.choices[place].offload) for place in places])
    counted = part.own[index] + more
    for column in np.lexsort((priced.step_seconds, counted)).tolist():
        if priced.step_seconds[column] >= quest.limit_of(int(counted[column])):
            continue
        if priced.fits[column]:
            assignment = _uniform(instance, cuts, column, int(part.ends[places[column]]))
            if _offer(part, quest, part.space.strategy(index, instance, assignment)):
                return


@dataclass(frozen=True, slots=True, kw_only=True)
class _UniformPlans:
    """What assignments cost in which all layers have one choice; arrays are [choices]."""

    step_seconds: Floats
    fits: Booleans


def _evaluate_uniform(
    instance: Instance, cuts: tuple[int, ...], *, ends: Integers
) -> _UniformPlans:
    """Return the step of every choice of blocks, if all blocks have it; cuts are as given.

    All free kinds have the same choices in the same order; `ends` [choices] are those of the
    embedding and the head that go with them.
    """
    loads = np.array(load_of_cuts(instance, cuts))
    instance = at_cuts(instance, cuts)
    starts = {name: getattr(instance, f"stage_{name}") for name in ("pace", "fill", "end")}
    starts |= {"memory": instance.stage_bytes, "host": np.zeros(instance.stage_count)}
    held = {
        name: start[:, None] + sum(_uniform_layers(instance, name, loads, ends))
        for name, start in starts.items()
    }
    transient = np.max(list(_uniform_layers(instance, "transient", loads > 0, ends)), axis=0)
    step = held["fill"].sum(axis=0) + held["end"].max(axis=0)
    return _UniformPlans(
        step_seconds=step + instance.repeat_count * held["pace"].max(axis=0),
        fits=(held["memory"] + transient <= instance.capacity_bytes[:, None]).all(axis=0)
        & (held["host"] <= instance.host_capacity_bytes[:, None]).all(axis=0),
    )


def _uniform_layers(
    instance: Instance, name: str, loads: Integers | Booleans, ends: Integers
) -> Iterator[Floats]:
    """Yield what each kind's layers add of a number, [stages, choices]."""
    for column, k in enumerate(instance.free_kinds):
        yield loads[:, column, None] * getattr(instance.kinds[k], name)
    for kind in instance.kinds:
        if kind.pinned_stage is not None:
            is_there = np.arange(instance.stage_count) == kind.pinned_stage
            yield np.where(is_there[:, None], getattr(kind, name)[:, ends], 0.0)


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
    """Look for simpler plans with short looks, and with longer ones while some are left open."""
    searches = [_TechniqueSearch(part=part, quest=quest) for part in parts]
    look = SIMPLE_LOOK_UNITS
    while True:
        quest.open_complexities.clear()
        quest.is_faster_open = quest.is_cut_short = False
        for counted, search, own in _in_turn(searches, quest):
            for index in search.part.waiting(quest, own, counted):
                if not search.ask(index, counted, look=look):
                    quest.leave_open(counted)
        is_open = quest.is_faster_open or quest.open_complexities
        if not (is_open and quest.is_cut_short) or quest.effort.is_over:
            return
        look *= 8.0


def _in_turn(
    searches: Sequence[_TechniqueSearch], quest: _Quest
) -> Iterator[tuple[int, _TechniqueSearch, int]]:
    """Yield how many techniques to ask for, up to the best plan's, with parts and those of degrees.

    Degrees of fewer techniques come first, and leave more to layers.
    """
    counted = min((int(search.part.own.min()) for search in searches), default=0)
    while counted < quest.best.complexity:
        counted += 1
        for search in searches:
            counts = search.part.degree_counts
            for own in counts[counts < counted].tolist():
                yield counted, search, own


Technique = tuple[str, object]
"""What a layer does or does not, or how stages are: a family, and which of it."""

_UNEVEN: Technique = ("stages", "unequal")


def _techniques(choice: Choice, *, is_block: bool) -> frozenset[Technique]:
    """Return what a layer of a choice uses; the ends have no activations to keep or to offload."""
    used: set[Technique] = {("ZeRO", choice.zero_stage)}
    if is_block:
        used.add(("checkpointing", choice.activation_checkpointing))
    for state in Offload:
        if state in choice.offload:
            used.add(("offloaded", state))
        elif is_block or state is not Offload.ACTIVATIONS:
            used.add(("kept back", state))
    return frozenset(used)


def _counted(used: frozenset[Technique]) -> int:
    """Return how many techniques count (`planner.space.complexity`).

    Of the ZeRO stages and of the checkpointings the first counts nothing, nor does what is not
    offloaded by itself.
    """
    members: dict[str, set[object]] = defaultdict(set)
    for family, which in used:
        members[family].add(which)
    further = sum(max(len(members[family]) - 1, 0) for family in ("ZeRO", "checkpointing"))
    offloaded = members["offloaded"]
    some_alone = offloaded & members["kept back"]
    return further + len(offloaded) + len(some_alone) + len(members["stages"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlanSet:
    """The plans of a configuration that lack some techniques and have others."""

    forbidden: frozenset[Technique] = frozenset()
    used: frozenset[Technique] = frozenset()

    def within(self, techniques: Sequence[Technique], most: int) -> frozenset[Technique]:
        """Return what plans of so many techniques at the `most` may have."""
        allowed = (each for each in techniques if each not in self.forbidden)
        return frozenset(each for each in allowed if _counted(self.used | {each}) <= most)

    def without_one_of(self, used: frozenset[Technique]) -> Iterator[_PlanSet]:
        """Yield sets that have, together, every plan without one of some techniques."""
        had = self.used
        for each in sorted(used - self.used, key=_order):
            yield _PlanSet(forbidden=self.forbidden | {each}, used=had)
            had |= {each}


def _order(technique: Technique) -> tuple[int, str]:
    """Put stages of unequal length first: without them a configuration is soon decided."""
    return technique != _UNEVEN, str(technique)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A plan of a configuration with its techniques."""

    assignment: Assignment
    instance: Instance
    step_seconds: float
    used: frozenset[Technique]


class _Outcome(Enum):
    """What is said of a set without a plan of it."""

    NOTHING = "nothing is below the limit"
    OPEN = "it is not known"


@dataclass(slots=True, kw_only=True)
class _TechniqueSearch:
    """Branching on techniques in the configurations of a part.

    `never` has what was shown to leave no plan below the limit, by configuration, and `known` the
    plans that were found; `settled` the limit below which a configuration has no plan of so many
    techniques.
    """

    part: _Part
    quest: _Quest
    never: dict[int, list[frozenset[Technique]]] = field(default_factory=lambda: defaultdict(list))
    known: dict[int, list[_Found]] = field(default_factory=lambda: defaultdict(list))
    settled: dict[tuple[int, int], float] = field(default_factory=dict)

    def ask(self, index: int, counted: int, *, look: float) -> bool:
        """Offer plans of at most so many techniques that are better than the best.

        Return whether there are no others. Each set of plans is looked into for so long.
        """
        is_settled = self.quest.limit_of(counted) <= self.settled.get((index, counted), 0.0)
        if not is_settled and self._branch(index, counted, look=look):
            is_settled, self.settled[index, counted] = True, self.quest.limit_of(counted)
        return is_settled

    def _branch(self, index: int, counted: int, *, look: float) -> bool:
        part, quest, is_settled = self.part, self.quest, True
        most = counted - int(part.own[index])
        waiting = [_PlanSet()]
        while waiting:
            if quest.effort.is_late:  # what is known already takes time to be priced and cut anew
                return False
            plans, limit = waiting.pop(), quest.limit_of(counted)
            if _counted(plans.used) > most:
                continue
            allowed = plans.within(part.techniques(index), most)
            found = self._solved(index, allowed, limit=limit, look=look)
            if found is _Outcome.NOTHING:
                continue
            if found is _Outcome.OPEN:
                is_settled = False
            elif _counted(found.used) > most:
                self._offer(index, found)
                waiting.extend(reversed(list(plans.without_one_of(found.used))))
            elif self._offer(index, found) and quest.limit_of(counted) < limit:
                waiting.append(plans)
            else:
                is_settled = False
        return is_settled

    def _offer(self, index: int, found: _Found) -> bool:
        """Offer a plan if it may be better; return whether what bounds say of it holds."""
        part, quest = self.part, self.quest
        if found.step_seconds >= quest.limit_of(int(part.own[index]) + _counted(found.used)):
            return True
        canonical = tidied(
            found.instance,
            found.assignment,
            choices=(part.space.choices, part.space.edges),
            deadline=quest.effort.deadline,
        )
        tried: Iterable[Assignment] = (canonical, found.assignment)
        if found.instance.has_several_parts:
            row = part.space.configurations.row(index)
            tried = (again for each in tried for again in cut_anew(found.instance, each, row))
        return any(
            _offer(part, quest, part.space.strategy(index, found.instance, each)) for each in tried
        )

    def _solved(
        self, index: int, allowed: frozenset[Technique], *, limit: float, look: float
    ) -> _Found | _Outcome:
        """Return a plan below the limit with nothing but what is allowed, or what is known."""
        if limit <= 0.0 or any(allowed <= nothing for nothing in self.never[index]):
            return _Outcome.NOTHING
        for known in self.known[index]:
            if known.step_seconds < limit and known.used <= allowed:
                return known
        if self.quest.effort.is_over:
            return _Outcome.OPEN
        self.quest.effort.spend(UNITS_PER_LOOK)
        instance = self.part.instance_of(index, allowed)
        cuts = None if _UNEVEN in allowed else self.part.cuts(index)
        if instance is None:
            return _Outcome.NOTHING
        tried = self._plan(instance, cuts, limit=limit, look=look)
        if tried is _Outcome.NOTHING:
            self.never[index].append(allowed)
        if isinstance(tried, _Outcome):
            return tried
        found = _Found(
            assignment=tried,
            instance=instance,
            step_seconds=evaluate(instance, tried).step_seconds,
            used=self.part.techniques_of(index, instance, tried),
        )
        self.known[index].append(found)
        return found

    def _plan(
        self, instance: Instance, cuts: tuple[int, ...] | None, *, limit: float, look: float
    ) -> Assignment | _Outcome:
        """Return a plan below the limit, cut at `cuts` if these are given."""
        bounds = objective_bounds(instance, cutoff_seconds=limit)
        if bounds is None or bounds.step_seconds() >= limit:
            return _Outcome.NOTHING
        tried = _at_cuts(instance, cuts) if cuts else heuristic_assignment(instance)
        if tried is not None and tried[0] < limit:
            return tried[1]
        branching = branching_of(instance, cutoff_seconds=limit, cuts=cuts)
        if branching is None:
            return _Outcome.OPEN
        effort = self.quest.effort.part(look)
        outcome = branching.run(limit=limit, enough=0.0, effort=effort)
        while not (outcome.assignment or outcome.is_done or outcome.is_stuck or effort.is_over):
            outcome = branching.run(limit=limit, enough=0.0, effort=effort)
        if outcome.assignment is not None:
            return outcome.assignment if cuts is None else replace(outcome.assignment, cuts=cuts)
        self.quest.is_cut_short |= effort.is_over and not outcome.is_done
        return _Outcome.NOTHING if outcome.is_done else _Outcome.OPEN


def _at_cuts(instance: Instance, cuts: tuple[int, ...]) -> tuple[float, Assignment] | None:
    """Return what the heuristic makes of given cuts with its step, if that fits."""
    filling = filling_of_cuts(instance, cuts)
    if not filling.fits.all():
        return None
    assignment = Assignment(counts=filling.counts, cuts=cuts)
    evaluation = evaluate(instance, assignment)
    return (evaluation.step_seconds, assignment) if fits(instance, evaluation) else None
