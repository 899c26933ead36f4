"""Pricing: instances of configurations, priced in blocks so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Sequence

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
from planner.ilp.bounds import quick_bounds
from planner.ilp.instance import Instance, instance_of
from planner.ilp.problem import Problem

_QUICK_BLOCK = 1024
_INSTANCE_BLOCK = 64


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
        self._place: dict[int, tuple[CostTable, int]] = {}
        self._order: list[int] = list(range(len(self._rows)))

    def quick_bounds(self) -> Floats:
        """Return a lower bound of every configuration's step, and remember their order."""
        bounds = np.concatenate(
            [
                self._block_bounds(self._rows[start : start + _QUICK_BLOCK])
                for start in range(0, len(self._rows), _QUICK_BLOCK)
            ]
        )
        self._order = [int(index) for index in np.argsort(bounds, kind="stable")]
        return bounds

    def instance(self, index: int) -> Instance:
        """Return the instance of one configuration; its neighbours in order are priced with it."""
        if index not in self._place:
            start = self._order.index(index)
            self._price(self._order[start : start + _INSTANCE_BLOCK])
        table, row = self._place[index]
        return instance_of(table, row, self._rows[index])

    def _block_bounds(self, rows: Sequence[Configuration]) -> Floats:
        columns = Configurations.of(rows)
        return quick_bounds(self._table(columns), columns)

    def _price(self, indices: list[int]) -> None:
        table = self._table(Configurations.of([self._rows[index] for index in indices]))
        self._place.update({index: (table, row) for row, index in enumerate(indices)})

    def _table(self, columns: Configurations) -> CostTable:
        return cost_table(
            self._problem.workload,
            self._problem.hardware.kinds[0],
            self._problem.job,
            configurations=columns,
            choices=self._choices,
        )
