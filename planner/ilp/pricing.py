"""Pricing: cost tables of configurations, priced in blocks so that memory stays bounded.

Configurations that differ by their schedule or by the order of devices alone have one row in the
tables: what a layer costs does not depend on either.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from planner.cost.configuration import (
    Choice,
    Choices,
    Configuration,
    Configurations,
    Floats,
    LayerChoices,
)
from planner.cost.layer_costs import CostTable
from planner.cost.table import cost_table
from planner.ilp.assembly import Shape, instance_of, shape_of
from planner.ilp.instance import Instance
from planner.ilp.problem import Problem
from planner.ilp.screen import Ranks, memory_bounds, quick_bounds, ranks_of
from planner.schema.strategy import ActivationCheckpointing, Offload, PipelineSchedule

_QUICK_BLOCK = 2048
_BLOCK = 128
_BLOCKS_KEPT = 6


class Pricing:
    """Prices configurations of one job: all of them for quick bounds, few for instances."""

    def __init__(
        self,
        problem: Problem,
        *,
        rows: Sequence[Configuration],
        choices: Sequence[Choice],
        edges: Sequence[Choice],
    ) -> None:
        self._problem = problem
        self._rows = tuple(rows)
        edge = Choices.of(edges)
        self._choices = LayerChoices(blocks=Choices.of(choices), embedding=edge, head=edge)
        self._plain = _plain_choices(choices, edges)
        self._blocks: OrderedDict[int, tuple[CostTable, ...]] = OrderedDict()
        self._place: dict[Configuration, tuple[int, int]] = {}
        self._members: list[tuple[Configuration, ...]] = []
        self._shapes: list[Shape] = []
        self._shape_places: dict[tuple[object, ...], int] = {}

    def quick_bounds(self) -> Floats:
        """Return a lower bound of every configuration's step without memory, [rows]."""
        return np.concatenate(
            [
                self._quick_block(self._rows[start : start + _QUICK_BLOCK])
                for start in range(0, len(self._rows), _QUICK_BLOCK)
            ]
        )

    def memory_bounds(self, indices: Sequence[int]) -> Floats:
        """Return a lower bound with memory for some configurations, [indices]."""
        bounds = np.empty(len(indices))
        for start in range(0, len(indices), _BLOCK):
            part = list(indices[start : start + _BLOCK])
            keys = list(dict.fromkeys(_priced_as(self._rows[i]) for i in part))
            self._add_block(tuple(keys))
            tables = self._tables(len(self._members) - 1)
            place = {key: row for row, key in enumerate(keys)}
            ranks = self._ranks([self._rows[i] for i in part], place)
            bounds[start : start + len(part)] = memory_bounds(tables, ranks)
        return bounds

    def instance(self, index: int) -> Instance:
        """Return the instance of one configuration."""
        key = _priced_as(self._rows[index])
        if key not in self._place:
            self._add_block((key,))
        block, row = self._place[key]
        return instance_of(self._tables(block), row, self._rows[index], self._problem.hardware)

    def _ranks(self, rows: Sequence[Configuration], place: dict[Configuration, int]) -> Ranks:
        """Return the ranks of `rows`, priced at `place` in a table."""
        members = [self._shape_place(row) for row in rows]
        used = sorted(set(members))
        again = {member: i for i, member in enumerate(used)}
        return ranks_of(
            [self._shapes[member] for member in used],
            [again[member] for member in members],
            [place[_priced_as(row)] for row in rows],
        )

    def _shape_place(self, row: Configuration) -> int:
        """Return the place of the row's shape among those known; many rows share one."""
        key = (
            row.pipeline_schedule,
            row.pipeline_parallel_degree,
            row.virtual_pipeline_degree,
            row.micro_batch_count,
            row.device_order,
        )
        if key not in self._shape_places:
            self._shape_places[key] = len(self._shapes)
            self._shapes.append(shape_of(row, self._problem.hardware))
        return self._shape_places[key]

    def _quick_block(self, rows: Sequence[Configuration]) -> Floats:
        keys = list(dict.fromkeys(_priced_as(row) for row in rows))
        place = {key: i for i, key in enumerate(keys)}
        return quick_bounds(self._priced(keys, self._plain), self._ranks(rows, place))

    def _add_block(self, keys: tuple[Configuration, ...]) -> None:
        self._members.append(keys)
        block = len(self._members) - 1
        self._place.update({key: (block, row) for row, key in enumerate(keys)})

    def _tables(self, block: int) -> tuple[CostTable, ...]:
        """Return a block's tables, priced again if they were let go of."""
        if block not in self._blocks:
            self._blocks[block] = self._priced(self._members[block], self._choices)
            while len(self._blocks) > _BLOCKS_KEPT:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(block)
        return self._blocks[block]

    def _priced(
        self, keys: Sequence[Configuration], choices: LayerChoices
    ) -> tuple[CostTable, ...]:
        columns = Configurations.of(keys)
        return tuple(
            cost_table(
                self._problem.workload,
                kind,
                self._problem.job,
                configurations=columns,
                choices=choices,
            )
            for kind in self._problem.hardware.kinds
        )


def _priced_as(row: Configuration) -> Configuration:
    """Return the configuration that stands for all of the same prices."""
    return replace(
        row,
        pipeline_schedule=PipelineSchedule.ONE_F_ONE_B,
        virtual_pipeline_degree=1,
        device_order=0,
    )


def _plain_choices(choices: Sequence[Choice], edges: Sequence[Choice]) -> LayerChoices:
    """Return choices among which are the least seconds of all.

    Checkpointing adds recompute and hides no more communication than it adds; offload of parameters
    and activations only adds transfers. What is left matters where memory is no limit: ZeRO stage,
    and whether the optimiser runs on the host.
    """
    order = list(ActivationCheckpointing)
    least = min((order.index(c.activation_checkpointing) for c in choices), default=0)
    blocks = [
        choice
        for choice in choices
        if order.index(choice.activation_checkpointing) == least
        and set(choice.offload) <= {Offload.OPTIMIZER}
    ]
    edge = Choices.of([choice for choice in edges if set(choice.offload) <= {Offload.OPTIMIZER}])
    return LayerChoices(blocks=Choices.of(blocks), embedding=edge, head=edge)
