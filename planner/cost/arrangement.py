"""Arrangement: where blocks lie under the interleaved schedule so that ranks wait least.

The closed form of the step knows of ranks alone: it has max_r sum_j t_rj for a round, and leaves
open how a rank spreads its blocks over its virtual stages. The simulated step depends on that, and
two things are done after the search.

Turns: in turn j every rank runs its j-th virtual stage, and the slowest one sets the turn's pace. A
round takes about sum_j max_r t_rj, which is made least by moves within ranks. They change neither
the closed form nor what a rank holds.

Cuts: the simulated step is the longest of many paths through the ranks' actions, each a sum of
durations. A path that is known says of any other cuts, from the durations of their stages, what
their step takes at the least. Neighbours of the best cuts are simulated in the order of what all
known paths say, and each gives a path more, until none is left that may be faster. Neighbours are
cuts at which one virtual stage has a block more, another one less, and those between as many.

Source: Baccelli et al. 1992, Synchronization and Linearity, section 2.5 (steps as longest paths);
Kelley 1960, doi:10.1137/0108053 (cutting planes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, permutations

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.cost.layer_costs import LayerFigures
from planner.cost.price_list import (
    PricedStrategy,
    choice_of,
    edge_choice,
    edges_of,
    priced_strategies,
)
from planner.cost.simulation import STAGES_MOST, LongestPath, longest_path
from planner.cost.stage import HeldLayers, virtual_stage_seconds
from planner.cost.step import predict_priced_simulated, predict_simulated
from planner.hardware import ClusterHardware
from planner.schema.job import Job
from planner.schema.plan import Prediction
from planner.schema.strategy import LayerGroup, PipelineSchedule, Strategy
from planner.workload.layer import ModelWorkload

_NORM = 32.0
"""Ranks of a turn count by this norm in place of their maximum, so that ties are broken too."""
_LEAST_GAIN = 1e-9
_TRIES = 48
"""Cuts that are simulated for one plan at most."""
_ACTIONS_TRIED = 200_000
"""Actions of ranks that are simulated for one plan at most: long pipelines have fewer tries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """What one rank holds: single blocks in their order, and how many go to each virtual stage.

    `seconds` are those of each block, `edges` those of embedding and head by virtual stage.
    """

    blocks: tuple[LayerGroup, ...]
    seconds: tuple[float, ...]
    edges: tuple[float, ...]
    sizes: tuple[int, ...]

    def turns(self) -> list[float]:
        """Return the seconds of each virtual stage."""
        until = [0.0, *accumulate(self.seconds)]
        ends = [0, *accumulate(self.sizes)]
        return [edge + until[ends[j + 1]] - until[ends[j]] for j, edge in enumerate(self.edges)]

    def moved(self) -> list[_Rank]:
        """Return the rank with one block moved, from each virtual stage to each other one."""
        found = []
        for giver, taker in permutations(range(len(self.sizes)), 2):
            if self.sizes[giver] > 1:
                sizes = list(self.sizes)
                sizes[giver], sizes[taker] = sizes[giver] - 1, sizes[taker] + 1
                found.append(replace(self, sizes=tuple(sizes)))
        return found


def arranged(
    workload: ModelWorkload,
    hardware: ClusterHardware,
    job: Job,
    strategy: Strategy,
    *,
    enough_seconds: float | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> Strategy:
    """Return the strategy with blocks moved where that shortens its simulated step, and fits.

    It is the strategy itself where ranks take no turns or its pipeline is not simulated. A step of
    `enough_seconds` is not shortened, nor one of the plan's closed form where these are not given.
    Nothing further is tried once the time `is_over`.

    Raises:
        ValueError: if the strategy or the job is not resolved.
    """
    interleaved = strategy.pipeline_schedule is PipelineSchedule.INTERLEAVED
    if not interleaved or strategy.pipeline_parallel_degree == 1:
        return strategy
    (priced,) = priced_strategies(workload, hardware, job, [strategy])
    if len(priced.stages) > STAGES_MOST:
        return strategy

    def predicted(other: PricedStrategy) -> Prediction:
        return predict_priced_simulated(other, workload=workload, hardware=hardware, job=job)

    best = _Simulated(priced=priced, prediction=predicted(priced))
    if len(priced.prices.tables[0].chain) == 1:
        moved = priced.prices.priced(_strategy_of(_balanced(_ranks(priced)), priced))
        other = _Simulated(priced=moved, prediction=predicted(moved))
        best = other if other.is_better_than(best) else best
    closed_form = best.prediction.closed_form_seconds
    if best.step_seconds <= (closed_form if enough_seconds is None else enough_seconds):
        return best.priced.strategy
    return _recut(best, predicted, is_over).priced.strategy


def simulated_plan(
    workload: ModelWorkload, hardware: ClusterHardware, job: Job, strategy: Strategy
) -> tuple[Strategy, Prediction]:
    """Return the strategy as `arranged`, and its prediction.

    Raises:
        ValueError: if the strategy or the job is not resolved.
    """
    best = arranged(workload, hardware, job, strategy)
    return best, predict_simulated(workload, hardware, job, best)


def _balanced(ranks: list[_Rank]) -> list[_Rank]:
    """Return the ranks after single moves, each the one that shortens a round most."""
    ranks = list(ranks)
    scale = max(max(rank.turns()) for rank in ranks)
    powers = [_powers(rank, scale) for rank in ranks]
    while True:
        sums = [sum(turn) for turn in zip(*powers, strict=True)]
        found = [
            (_change(sums, powers[place], _powers(one, scale)), place, one)
            for place, rank in enumerate(ranks)
            for one in rank.moved()
        ]
        best = min(found, key=lambda each: each[0], default=None)
        if best is None or best[0] >= -_LEAST_GAIN:
            return ranks
        _, place, ranks[place] = best
        powers[place] = _powers(ranks[place], scale)


def _powers(rank: _Rank, scale: float) -> list[float]:
    """Return what each virtual stage adds to its turn's norm before the root."""
    return [(t / scale) ** _NORM for t in rank.turns()]


def _change(sums: Sequence[float], old: Sequence[float], new: Sequence[float]) -> float:
    """Return by how much a round changes where a rank's part of each turn does."""
    return sum(
        float(max(total - before + after, 0.0) ** (1.0 / _NORM) - total ** (1.0 / _NORM))
        for total, before, after in zip(sums, old, new, strict=True)
        if before != after
    )


def _ranks(priced: PricedStrategy) -> list[_Rank]:
    """Return what every rank holds."""
    degree = priced.prices.configuration.pipeline_parallel_degree
    return [_rank(rank, priced) for rank in range(degree)]


def _rank(rank: int, priced: PricedStrategy) -> _Rank:
    own = [index for index in range(len(priced.stages)) if priced.rank_of(index) == rank]
    table = priced.prices.tables[priced.rank_kinds[rank]]
    groups = [group for index in own for group in priced.stages[index].layers]
    blocks = [group for group in groups for _ in range(group.block_count)]
    each = {group: _block_seconds(group, rank, priced) for group in set(groups)}
    first, last = (priced.prices.edges[edge_choice(edge)] for edge in edges_of(priced.strategy))
    edges = [0.0] * len(own)
    if own[0] == 0:
        edges[0] = _seconds(priced.prices.figures(table.embedding, first))
    if own[-1] == len(priced.stages) - 1:
        edges[-1] = _seconds(priced.prices.figures(table.head, last))
    return _Rank(
        blocks=tuple(blocks),
        seconds=tuple(each[group] for group in blocks),
        edges=tuple(edges),
        sizes=tuple(priced.stages[index].block_count for index in own),
    )


def _block_seconds(group: LayerGroup, rank: int, priced: PricedStrategy) -> float:
    table, choice = (
        priced.prices.tables[priced.rank_kinds[rank]],
        priced.prices.choices[choice_of(group)],
    )
    return _seconds(priced.prices.figures(table.blocks[0], choice))


def _seconds(figures: LayerFigures) -> float:
    return sum(figures.split_seconds)


def _strategy_of(ranks: Sequence[_Rank], priced: PricedStrategy) -> Strategy:
    """Return the strategy whose virtual stages hold the ranks' blocks."""
    waiting = [list(rank.blocks) for rank in ranks]
    sizes = [list(rank.sizes) for rank in ranks]
    stages, first = [], 0
    for stage in priced.stages:
        rank = priced.rank_of(stage.stage)
        size = sizes[rank].pop(0)
        blocks, waiting[rank] = waiting[rank][:size], waiting[rank][size:]
        stages.append(stage.model_copy(update={"layers": _groups(blocks, first)}))
        first += size
    return priced.strategy.model_copy(update={"stages": tuple(stages)})


def _groups(blocks: Sequence[LayerGroup], first: int) -> tuple[LayerGroup, ...]:
    """Return consecutive blocks from `first` on, neighbours of one choice in one group."""
    groups: list[LayerGroup] = []
    for place, block in enumerate(blocks, start=first):
        one = block.model_copy(update={"first_block": place, "block_count": 1})
        if groups and choice_of(groups[-1]) == choice_of(one):
            more = groups[-1].block_count + 1
            groups[-1] = groups[-1].model_copy(update={"block_count": more})
        else:
            groups.append(one)
    return tuple(groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Simulated:
    """A priced strategy with its simulated step."""

    priced: PricedStrategy
    prediction: Prediction

    @property
    def step_seconds(self) -> float:
        return self.prediction.step_seconds.p50

    def is_better_than(self, other: _Simulated) -> bool:
        """Return whether it fits and is faster by more than rounding."""
        most = other.step_seconds * (1.0 - _LEAST_GAIN)
        return self.prediction.fits and self.step_seconds < most


def _recut(
    best: _Simulated,
    predicted: Callable[[PricedStrategy], Prediction],
    is_over: Callable[[], bool],
) -> _Simulated:
    """Return the best of the neighbours that are simulated, one after another, and their own."""
    blocks = _Blocks.of(best.priced)
    cuts = tuple(accumulate((s.block_count for s in best.priced.stages), initial=0))
    paths = _Paths(blocks=blocks)
    paths.add(longest_path(best.priced), cuts)
    actions = 2 * len(best.priced.stages) * best.priced.prices.configuration.micro_batch_count
    for _ in range(min(_TRIES, _ACTIONS_TRIED // actions)):
        tried = paths.next_cuts(cuts)
        if tried is None or is_over():
            break
        priced = best.priced.prices.priced(blocks.strategy(best.priced, tried))
        other = _Simulated(priced=priced, prediction=predicted(priced))
        paths.add(longest_path(priced), tried)
        if other.is_better_than(best):
            best, cuts = other, tried
    return best


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blocks:
    """The chain's blocks one by one, each with its choice.

    `seconds` [virtual stages, blocks, kinds of actions] are those of a block on the rank of a
    virtual stage.
    """

    groups: tuple[LayerGroup, ...]
    seconds: Floats

    @staticmethod
    def of(priced: PricedStrategy) -> _Blocks:
        """Return the blocks of a strategy."""
        groups = [group for stage in priced.stages for group in stage.layers]
        single = [
            group.model_copy(update={"first_block": group.first_block + place, "block_count": 1})
            for group in groups
            for place in range(group.block_count)
        ]
        kinds = [kind for kind, count in priced.prices.tables[0].chain for _ in range(count)]
        choices = [priced.prices.choices[choice_of(group)] for group in single]
        by_device = [
            [
                _seconds_by_kind(priced.prices.figures(table.blocks[kind], choice))
                for kind, choice in zip(kinds, choices, strict=True)
            ]
            for table in priced.prices.tables
        ]
        devices = [priced.rank_kinds[priced.rank_of(i)] for i in range(len(priced.stages))]
        return _Blocks(groups=tuple(single), seconds=np.array(by_device)[devices])

    def stage_seconds(self, cuts: Sequence[int]) -> Floats:
        """Return the seconds of every virtual stage's blocks, [virtual stages, kinds]."""
        return np.array(
            [own[a:b].sum(axis=0) for own, a, b in zip(self.seconds, cuts, cuts[1:], strict=False)]
        )

    def strategy(self, priced: PricedStrategy, cuts: Sequence[int]) -> Strategy:
        """Return the strategy with its blocks cut anew."""
        stages = tuple(
            stage.model_copy(update={"layers": _groups(self.groups[first:last], first)})
            for stage, first, last in zip(priced.stages, cuts, cuts[1:], strict=False)
        )
        return priced.strategy.model_copy(update={"stages": stages})


def _seconds_by_kind(figures: LayerFigures) -> tuple[float, ...]:
    """Return the seconds of each of `planner.cost.simulation.KINDS`."""
    return virtual_stage_seconds([HeldLayers(figures=figures, count=1)]).by_kind()


@dataclass(slots=True, kw_only=True)
class _Paths:
    """Paths through the ranks' actions: none is longer than the longest, wherever the cuts are.

    Their messages are taken to be the same at all cuts.
    A path is how often it runs each virtual stage, [virtual stages, kinds], and its seconds beside
    blocks. `seen` are cuts whose own longest path is known.
    """

    blocks: _Blocks
    counts: list[Integers] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    seen: set[tuple[int, ...]] = field(default_factory=set)

    def add(self, path: LongestPath, cuts: tuple[int, ...]) -> None:
        """Add the longest path of some cuts."""
        counts = np.array(path.counts)
        self.counts.append(counts)
        self.others.append(path.seconds - float((counts * self.blocks.stage_seconds(cuts)).sum()))
        self.seen.add(cuts)

    def next_cuts(self, cuts: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the neighbour of which the paths say least, None where none may be faster."""
        counts = np.array(self.counts)
        lengths = np.array(self.others)
        lengths = lengths + (counts * self.blocks.stage_seconds(cuts)).sum(axis=(1, 2))
        bounds = np.stack([self._bounds(counts, lengths, cuts, by=by) for by in (1, -1)])
        below = float(lengths.max()) * (1.0 - _LEAST_GAIN)
        for place in np.argsort(bounds, axis=None, kind="stable").tolist():
            way, first, last = (int(each) for each in np.unravel_index(place, bounds.shape))
            if bounds[way, first, last] >= below:
                return None
            by = (1, -1)[way]
            found = tuple(
                cut + by if first < stage <= last + 1 else cut for stage, cut in enumerate(cuts)
            )
            if found not in self.seen:
                return found
        return None

    def _bounds(self, counts: Integers, lengths: Floats, cuts: Sequence[int], *, by: int) -> Floats:
        """Return bounds for all inner cuts from one to another moved by a block, [first, last].

        They are inf where a virtual stage would have no block left. With c_s what a path counts of
        stage s, a cut before block x of stage s that moves up changes it by (c_(s-1) - c_s) t_x.
        """
        inner = np.arange(1, len(cuts) - 1)
        moved = np.array(cuts)[1:-1] - (by < 0)
        here, before = self.blocks.seconds[inner, moved], self.blocks.seconds[inner - 1, moved]
        change = by * ((counts[:, :-1] * before).sum(axis=2) - (counts[:, 1:] * here).sum(axis=2))
        until = np.cumsum(change, axis=1)
        bounds = lengths[:, None, None] + until[:, None, :] - (until - change)[:, :, None]
        sizes = np.diff(cuts)
        is_left = (sizes[None, 1:] if by > 0 else sizes[:-1, None]) > 1
        is_range = inner[:, None] <= inner[None, :]
        return np.where(is_range & is_left, bounds.max(axis=0), np.inf)
