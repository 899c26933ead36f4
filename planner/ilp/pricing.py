"""Pricing: cost tables of configurations, priced in blocks so that memory stays bounded.

Configurations that differ by the order of devices alone have one row in the tables, and so do those
of most schedules: what a layer costs depends on these only in whether all forwards come first, and
in how many virtual stages of a rank take turns. The latter is of no account to what layers hold, so
that bytes have fewer rows than seconds. Quick bounds leave out what ranks exchange of parameters
and gradients, and have fewer still. What the schedule makes of the ranks is in turn the same for
all configurations with the same pipeline and micro-batches.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.cost.configuration import (
    Booleans,
    Choice,
    Choices,
    Configurations,
    Floats,
    Integers,
    LayerChoices,
    combinations,
)
from planner.cost.learnt import learnt_by
from planner.cost.price_list import PriceList
from planner.cost.table import UNSYNCED_BY, bytes_table, cost_table, seconds_table
from planner.ilp.batched_bounds import memory_bounds, quick_bounds
from planner.ilp.batched_chains import picked, ranks_of
from planner.ilp.cost_arrays import HeldSheet, PriceBlocks, Sheet, SpentSheet
from planner.ilp.instance import (
    Assignment,
    Compared,
    Instance,
    compared_alike,
    compared_apart,
    instance_of,
    shapes_of,
)
from planner.ilp.milp import strategy_of
from planner.ilp.problem import Problem
from planner.ilp.settings import FEW_KEPT, INSTANCES_KEPT, RANK_GROUPS, ROWS_AT_ONCE
from planner.schema.strategy import (
    ActivationCheckpointing,
    ContextParallelKind,
    PipelineSchedule,
    Strategy,
)
from planner.space.choices import block_choices, edge_choices
from planner.space.degrees import enumerate_configurations
from planner.space.schedules import skips_checkpointing

if TYPE_CHECKING:
    from planner.ilp.branch_and_bound import Branching
    from planner.ilp.frontier import Best

_SHAPE = (
    "pipeline_schedule",
    "pipeline_parallel_degree",
    "virtual_pipeline_degree",
    "micro_batch_count",
    "device_order",
)
_BYTES = (
    "tensor_parallel_degree",
    "sequence_parallel",
    "pipeline_parallel_degree",
    "forwards_first",
    "context_parallel_degree",
    "context_parallel_kind",
    "expert_parallel_degree",
    "expert_tensor_parallel_degree",
    "data_parallel_replicate_degree",
    "data_parallel_shard_degree",
    "micro_batch_size",
    "micro_batch_count",
)
_PRICE = (*_BYTES, "turns")
_BUT_MICRO_BATCHES = tuple(
    name for name in dict.fromkeys((*_SHAPE, *_BYTES)) if not name.startswith("micro_batch")
)
_Table = TypeVar("_Table")


@dataclass(frozen=True, slots=True)
class _EachKind:
    """Prices some configurations of a job on every kind of device."""

    problem: Problem
    configurations: Configurations

    def spent(self, members: Integers, choices: LayerChoices) -> tuple[SpentSheet, ...]:
        """Return the seconds of some configurations on each kind of device."""
        return tuple(map(SpentSheet.of, self._tables(seconds_table, members, choices)))

    def unsynced(self, members: Integers, choices: LayerChoices) -> tuple[SpentSheet, ...]:
        """Return the seconds that some take in any case: those alike in `UNSYNCED_BY` as long."""
        table = partial(seconds_table, is_synced=False)
        return tuple(map(SpentSheet.of, self._tables(table, members, choices)))

    def held(self, members: Integers, choices: LayerChoices) -> tuple[HeldSheet, ...]:
        """Return the bytes of some configurations on each kind of device."""
        return tuple(map(HeldSheet.of, self._tables(bytes_table, members, choices)))

    def both(self, members: Integers, choices: LayerChoices) -> tuple[Sheet, ...]:
        """Return both of some configurations on each kind of device."""
        return tuple(map(Sheet.of, self._tables(cost_table, members, choices)))

    def _tables(
        self, table: Callable[..., _Table], members: Integers, choices: LayerChoices
    ) -> Iterator[_Table]:
        columns, problem = self.configurations.take(members), self.problem
        for kind in problem.hardware.kinds:
            yield table(
                problem.workload, kind, problem.job, configurations=columns, choices=choices
            )


class Pricing:
    """Prices configurations of one job: all of them for quick bounds, few for instances."""

    def __init__(
        self,
        problem: Problem,
        *,
        configurations: Configurations,
        choices: Sequence[Choice],
        edges: Sequence[Choice],
    ) -> None:
        self._problem = problem
        self._configurations = configurations
        self._each_kind = _EachKind(problem, configurations)
        edge = Choices.of(edges)
        self._choices = LayerChoices(blocks=Choices.of(choices), embedding=edge, head=edge)
        kept = [c for c in choices if c.activation_checkpointing is ActivationCheckpointing.NONE]
        self._kept = replace(self._choices, blocks=Choices.of(kept)) if kept else None
        edge = _least_choices(edges)
        self._least = LayerChoices(blocks=_least_choices(choices), embedding=edge, head=edge)
        self._shape_first, self._shape_of = alike(configurations, _SHAPE)
        self._price_first, self._price_of = alike(configurations, _PRICE)
        unsynced = UNSYNCED_BY if learnt_by(problem.job) is None else _PRICE
        self._quick_first, self._quick_of = alike(configurations, unsynced)
        self._bytes_first, self._bytes_of = alike(configurations, _BYTES)
        self._shapes = shapes_of(
            (configurations.row(int(first)) for first in self._shape_first),
            problem.hardware,
            problem.job.stack,
        )
        self._coarse = ranks_of(self._shapes, part_count=1)  # for bounds without memory
        self._fine = ranks_of(self._shapes, part_count=RANK_GROUPS)
        each_kind, first, of_layers = self._each_kind, self._price_first, self._choices
        self._blocks = PriceBlocks(  # which does not know this object: all goes when it goes
            lambda prices: each_kind.both(first[prices], of_layers),
            device_kind_count=len(problem.hardware.kinds),
        )
        self._instances: OrderedDict[int, Instance] = OrderedDict()
        self._fills: Floats = np.full(len(configurations), np.nan)

    def quick_bounds(
        self, indices: Sequence[int] | None = None, *, deadline: float = float("inf")
    ) -> Floats:
        """Return lower bounds of the step without memory, [indices], or of all configurations.

        They are 0 where the deadline (of `time.perf_counter`) would be over, at the pace so far.
        """
        count = len(self._configurations)
        asked = np.arange(count) if indices is None else np.array(indices, dtype=np.int64)
        by_price = asked[np.argsort(self._quick_of[asked], kind="stable")]
        bounds, latest = np.full(count, np.inf), time.perf_counter()
        for start in range(0, len(by_price), ROWS_AT_ONCE):
            before, latest = latest, time.perf_counter()
            if 2.0 * latest - before > deadline:
                bounds[by_price[start:]] = 0.0
                break
            part = by_price[start : start + ROWS_AT_ONCE]
            level, self._fills[part] = self._quick_block(part)
            bounds[part] = level + self._fills[part]
        return bounds[asked]

    def memory_bounds(
        self,
        indices: Sequence[int],
        *,
        limit_seconds: Sequence[float] | None = None,
        with_fills: bool = True,
    ) -> Floats:
        """Return a lower bound with memory for some configurations, [indices].

        With `limit_seconds` [indices], what is above is not bounded closer. Fills may be left out,
        if they are not known.
        """
        bounds, asked = np.empty(len(indices)), np.array(indices)
        limits = np.full(len(indices), np.inf) if limit_seconds is None else np.array(limit_seconds)
        by_price = np.argsort(self._price_of[asked], kind="stable")
        for part in np.array_split(by_price, -(-len(indices) // ROWS_AT_ONCE)):
            if with_fills:
                self._add_fills(asked[part])
            is_kept = self._skips_checkpointing(asked[part])
            for choices, rows in ((self._choices, part[~is_kept]), (self._kept, part[is_kept])):
                bounds[rows] = self._screened(asked[rows], limits[rows], choices)
        return bounds

    def _add_fills(self, part: Integers) -> None:
        """Bound the fills that are not known."""
        unknown = part[np.isnan(self._fills[part])]
        if len(unknown):
            self.quick_bounds(unknown.tolist())

    def _screened(self, part: Integers, limits: Floats, choices: LayerChoices | None) -> Floats:
        """Return bounds with memory of a block of configurations, inf without any choices."""
        if choices is None or not len(part):
            return np.full(len(part), np.inf)
        apart, rows = np.unique(self._bytes_of[part], return_inverse=True)

        def seconds_of(needed: Integers) -> tuple[tuple[SpentSheet, ...], Integers]:
            prices, places = np.unique(self._price_of[part[needed]], return_inverse=True)
            return self._each_kind.spent(self._price_first[prices], choices), places

        return memory_bounds(
            self._each_kind.held(self._bytes_first[apart], choices),
            picked(self._fine, self._shape_of[part], rows),
            seconds_of=seconds_of,
            fills=np.nan_to_num(self._fills[part]),
            limits=limits,
        )

    def leanest(self, indices: Sequence[int]) -> dict[int, int]:
        """Return for each configuration one of them in which whatever fits in it fits as well.

        Of those that differ by micro-batches alone, it is the one with the smallest, as long as
        each holds no less than the next smaller, and itself otherwise.
        """
        columns = self._configurations.take(np.array(indices, dtype=np.int64))
        group = alike(columns, _BUT_MICRO_BATCHES)[1]
        order = np.lexsort((columns.micro_batch_size, group))
        asked, group = np.array(indices, dtype=np.int64)[order], group[order]
        is_first = np.array([True, *~((group[1:] == group[:-1]) & self._hold_no_less(asked))])
        leanest = asked[np.flatnonzero(is_first)[np.cumsum(is_first) - 1]]
        return dict(zip(asked.tolist(), leanest.tolist(), strict=True))

    def _hold_no_less(self, asked: Integers) -> Booleans:
        """Return which holds no less of anything, on any rank, than the one before, [asked - 1]."""
        flights = [self._shapes[shape].in_flight for shape in self._shape_of[asked]]
        no_less = np.array(
            [len(a) == len(b) and bool((a <= b).all()) for a, b in pairwise(flights)], dtype=bool
        )
        for sheet in self._each_kind.held(asked, self._choices):
            held = [number for layer in sheet.layers for number in layer]
            for own in (*held, sheet.fixed.sent_bytes.T, sheet.fixed.buffer_bytes.T):
                no_less &= (own[:, 1:] >= own[:, :-1]).all(axis=0)
        return no_less

    def prepare(self, indices: Sequence[int]) -> None:
        """Price together what will be asked for soon, unless all of it is in memory.

        What is would not be for long, if room was made for the rest.
        """
        prices = np.unique(self._price_of[list(indices)])
        if not all(map(self._blocks.is_at_hand, prices.tolist())):
            for start in range(0, len(prices), ROWS_AT_ONCE):
                self._blocks.add(prices[start : start + ROWS_AT_ONCE])

    def is_at_hand(self, index: int) -> bool:
        """Return whether the configuration or its prices are still in memory."""
        at_hand = self._blocks.is_at_hand(int(self._price_of[index]))
        return index in self._instances or at_hand

    def instance(self, index: int) -> Instance:
        """Return the instance of one configuration; those asked for last are kept."""
        if index not in self._instances:
            self._instances[index] = self._made(index)
            while len(self._instances) > INSTANCES_KEPT:
                self._instances.popitem(last=False)
        self._instances.move_to_end(index)
        return self._instances[index]

    def instance_apart(self, index: int) -> Instance:
        """Return the same with all choices that matter where virtual stages hold more or less."""
        return self._made(index, compared=compared_apart)

    def instance_with_all(self, index: int) -> Instance:
        """Return the same with all choices that the schedule is searched with."""
        return self._made(index, compared=None)

    def instance_of_choices(self, index: int, allowed: Booleans, ends: Booleans) -> Instance | None:
        """Return the same with some choices of blocks and of the ends, [choices], None without."""
        allowed = allowed & self._allowed(index)
        if not allowed.any() or not ends.any():
            return None
        return self._made(index, allowed=allowed, allowed_ends=ends)

    def _made(
        self,
        index: int,
        *,
        allowed: Booleans | None = None,
        allowed_ends: Booleans | None = None,
        compared: Compared | None = compared_alike,
    ) -> Instance:
        return instance_of(
            *self._blocks.row(int(self._price_of[index])),
            self._shapes[int(self._shape_of[index])],
            allowed=self._allowed(index) if allowed is None else allowed,
            allowed_ends=allowed_ends,
            compared=compared,
        )

    def _allowed(self, index: int) -> Booleans:
        """Return which block choices the schedule is searched with, [choices]."""
        checkpointing = self._choices.blocks.selective | self._choices.blocks.full
        return ~(checkpointing & self._skips_checkpointing(np.array([index])))

    def _skips_checkpointing(self, part: Integers) -> Booleans:
        """Return which configurations are searched without checkpointed blocks, [part]."""
        job = self._problem.job
        skipping = [str(each) for each in PipelineSchedule if skips_checkpointing(job, each)]
        return np.isin(self._configurations.pipeline_schedule[part], skipping)

    def _quick_block(self, part: Integers) -> tuple[Floats, Floats]:
        prices, rows = np.unique(self._quick_of[part], return_inverse=True)
        sheets = self._each_kind.unsynced(self._quick_first[prices], self._least)
        return quick_bounds(sheets, picked(self._coarse, self._shape_of[part], rows))


class PricedSpace:
    """The configurations of a problem with their prices, which all searches of it may share.

    They share as well what they have proven of steps (`bounds`), the `plans` that they have found
    (of `planner.ilp.frontier`) and some of what they have begun to branch on, by configuration.
    `outdone` are those in which branching was better than a program.
    """

    def __init__(self, problem: Problem) -> None:
        job = problem.job
        self._problem = problem
        self._bounds: Floats | None = None
        self._price_lists: dict[int, PriceList] = {}
        self.plans: dict[int, Best] = {}
        self.branchings: dict[int, Branching] = {}
        self.outdone: set[int] = set()
        self.listed = enumerate_configurations(problem.graph, problem.hardware, job)
        self.configurations = self.listed.configurations
        is_part = job.framework is not None  # of a framework's space: all layers offload the same
        self.choices = block_choices(job.limits, job.offload_to, offloads_all=is_part)
        self.edges = edge_choices(job.limits, job.offload_to, offloads_all=is_part)

    @cached_property
    def pricing(self) -> Pricing:
        """Return the prices of all configurations."""
        return Pricing(
            self._problem,
            configurations=self.configurations,
            choices=self.choices,
            edges=self.edges,
        )

    def price_list(self, index: int) -> PriceList:
        """Return what layers cost under a configuration; the last few that were asked for stay."""
        known = self._price_lists.pop(index, None) or PriceList.of(
            self._problem.workload,
            self._problem.hardware,
            self._problem.job,
            self.configurations.row(index),
            choices=self.choices,
            edges=self.edges,
        )
        self._price_lists[index] = known
        if len(self._price_lists) > FEW_KEPT:
            del self._price_lists[next(iter(self._price_lists))]
        return known

    def strategy(self, index: int, instance: Instance, assignment: Assignment) -> Strategy:
        """Return the strategy that an assignment of a configuration stands for."""
        row = self.configurations.row(index)
        return strategy_of(
            instance,
            assignment,
            configuration=row,
            choices=self.choices,
            edges=self.edges,
            device_groups=self._problem.hardware.stage_groups(
                row.device_order, pipeline_parallel_degree=row.pipeline_parallel_degree
            ),
        )

    def bounds(self, deadline: float = float("inf")) -> Floats:
        """Return the best known lower bounds of all steps, at first those without memory.

        Some are 0 if these took too long.
        """
        if self._bounds is None:
            self._bounds = self.pricing.quick_bounds(deadline=deadline)
        return self._bounds

    def raise_bounds(self, keys: Floats) -> None:
        """Take note of lower bounds of the steps of all configurations, if others are known."""
        if self._bounds is not None:
            self._bounds = np.maximum(self._bounds, keys)


def alike(configurations: Configurations, names: Sequence[str]) -> tuple[Integers, Integers]:
    """Return the first configuration of each combination of `names`, and whose each one is.

    Shapes are [combinations] and [configurations].
    """
    columns = (_codes(getattr(configurations, name)) for name in names)
    return combinations(columns, len(configurations))


def _codes(values: NDArray[Any]) -> tuple[Integers, int]:
    """Return whole numbers that stand for the values, and one more than the largest."""
    if values.dtype.kind != "U":
        codes = values.astype(np.int64)
        return codes, int(codes.max()) + 1
    codes = np.zeros(len(values), dtype=np.int64)
    names = [*PipelineSchedule, *ContextParallelKind]
    for place, name in enumerate(names):
        codes[values == name] = place
    return codes, len(names)


def _least_choices(choices: Sequence[Choice]) -> Choices:
    """Return each ZeRO stage with the least checkpointing and no offload.

    No other choice of a stage takes less where states are not exchanged: recompute and transfers
    only add to it.
    """
    order = list(ActivationCheckpointing)
    most_first = sorted(choices, key=lambda choice: -order.index(choice.activation_checkpointing))
    return Choices.of([*{c.zero_stage: replace(c, offload=()) for c in most_first}.values()])
