"""Arrangement: how ranks spread blocks over their virtual stages under the interleaved schedule.

Ranks of an interleaved pipeline take turns: in turn j every rank runs its j-th virtual stage, and
the slowest one sets the turn's pace. A round thus takes

    sum_j max_r t_rj

where the closed form, which knows of ranks alone, has max_r sum_j t_rj. The two agree where some
arrangement lets all ranks be slow in the same turns. The search leaves the arrangement open: what
a rank holds, and with it the closed form, does not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, permutations

from planner.cost.layer_costs import LayerFigures
from planner.cost.price_list import (
    PricedStrategy,
    choice_of,
    edge_choice,
    edges_of,
    priced_strategies,
)
from planner.cost.step import predict_simulated
from planner.hardware import ClusterHardware
from planner.schema.job import Job
from planner.schema.plan import Prediction
from planner.schema.strategy import LayerGroup, PipelineSchedule, Strategy
from planner.workload.layer import ModelWorkload

_NORM = 32.0
"""Ranks of a turn count by this norm in place of their maximum, so that ties are broken too."""
_LEAST_GAIN = 1e-9


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
    workload: ModelWorkload, hardware: ClusterHardware, job: Job, strategy: Strategy
) -> Strategy:
    """Return the strategy with blocks moved within ranks where that shortens its simulated step.

    It is the strategy itself where ranks take no turns, where blocks differ in kind, or where no
    arrangement that was found is faster and fits.

    Raises:
        ValueError: if the strategy or the job is not resolved.
    """
    interleaved = strategy.pipeline_schedule is PipelineSchedule.INTERLEAVED
    if not interleaved or strategy.pipeline_parallel_degree == 1:
        return strategy
    (priced,) = priced_strategies(workload, hardware, job, [strategy])
    if len(priced.prices.tables[0].chain) > 1:
        return strategy
    other = _strategy_of(_balanced(_ranks(priced)), priced)
    before, after = (predict_simulated(workload, hardware, job, one) for one in (strategy, other))
    if before.simulated is None or after.simulated is None:
        return strategy
    faster = after.simulated.step_seconds < before.simulated.step_seconds
    return other if faster and after.fits else strategy


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
