"""Knapsack: bounds of the least cost of given layers on one rank.

    minimise   sum c_s n_s   over whole n_s >= 0, where the choices of kind k sum to its layers
    subject to sum m_s n_s + largest transient <= capacity,   sum h_s n_s <= host,
               and any further limits of the same form as host's

For a largest transient w the choices with more are left out and the capacity is less by w. At a
price lambda of memory the cost is at least sum min (c_s + lambda m_s) - lambda (capacity - w), and
the best prices are slopes of the kinds' lower hulls. A layer at least has the transient w itself:
without one the transient would be less, and the room more. So the least reduced cost of all choices
with w, what c_s + lambda m_s is beyond the least of its kind, is added to the bound.
`planner.ilp.packing` finds the least cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.instance import Instance

_ROUNDING = 1e-12
_NEVER = 1e200


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Columns by kind, and in these in the order of their transients.

    `thresholds` are all transients. The columns of one kind and transient follow one another in
    `order`: they begin at `starts`, and `cells` are their places among all kinds and thresholds.
    `members` are the columns of each kind that has some.
    """

    thresholds: Floats
    order: Integers
    starts: Integers
    cells: Integers
    members: tuple[Integers, ...]
    kind_count: int

    @staticmethod
    def of(kind: Integers, transient: Floats) -> Frame:
        """Return the frame of columns."""
        thresholds, level = np.unique(transient, return_inverse=True)
        cell = kind * len(thresholds) + level
        order = np.argsort(cell, kind="stable")
        cells, starts = np.unique(cell[order], return_index=True)
        count = int(kind.max()) + 1
        members = (np.flatnonzero(kind == k) for k in range(count))
        return Frame(
            thresholds=thresholds,
            order=order,
            starts=starts,
            cells=cells,
            members=tuple(own for own in members if len(own)),
            kind_count=count,
        )

    def least(self, values: Floats) -> Floats:
        """Return the least of `values` [columns, ...] by kind within each threshold.

        Shape [kinds, thresholds, ...]; inf where a kind has no such choice.
        """
        table = self.least_at(values)
        return np.minimum.accumulate(table, axis=1, out=table)

    def least_at(self, values: Floats) -> Floats:
        """Return the same of the choices with the transient itself alone."""
        further = values.shape[1:]
        table = np.full((self.kind_count * len(self.thresholds), *further), np.inf)
        table[self.cells] = np.minimum.reduceat(values[self.order], self.starts, axis=0)
        return table.reshape(self.kind_count, len(self.thresholds), *further)


@dataclass(frozen=True, kw_only=True)
class Knapsack:
    """Choices of all kinds side by side, each [columns]; `kind` says whose; limits in bytes.

    `further` [limits, columns] are what a layer takes of more limits, `ceilings` [limits] these.
    """

    kind: Integers
    cost: Floats
    memory: Floats
    transient: Floats
    host: Floats
    capacity: float
    host_capacity: float
    further: Floats | None = None
    ceilings: Floats | None = None
    known_frame: Frame | None = None

    @cached_property
    def frame(self) -> Frame:
        """Return the columns in the order of their transients."""
        return self.known_frame or Frame.of(self.kind, self.transient)

    @cached_property
    def taken(self) -> Floats:
        """Return what a layer takes of every limit but the memory's, [limits, columns]."""
        host = self.host[None, :]
        return host if self.further is None else np.concatenate([host, self.further])

    @cached_property
    def limits(self) -> Floats:
        """Return every limit but the memory's, eased by what rounding may add, [limits]."""
        host = np.array([self.host_capacity])
        every = host if self.ceilings is None else np.concatenate([host, self.ceilings])
        return np.asarray(every + _ROUNDING * np.abs(every))

    def under(self, transient: float) -> Integers:
        """Return the columns whose transient is no larger."""
        return np.flatnonzero(self.transient <= transient)

    @property
    def thresholds(self) -> Floats:
        """Return the largest transients that a packing may have, least first."""
        return self.frame.thresholds

    @cached_property
    def prices(self) -> Floats:
        """Return lambda: 0 and the hull slopes of every kind, [prices]."""
        slopes = {0.0}
        for own in self.frame.members:
            slopes.update(hull_slopes(self.cost[own].tolist(), self.memory[own].tolist()))
        return np.array(sorted(slopes))

    @cached_property
    def least_priced(self) -> Floats:
        """Return the least c + lambda m of a layer by the largest transient allowed.

        Shape [kinds, thresholds, prices]; inf where a kind has no such choice.
        """
        least: Floats = np.minimum.accumulate(self._least_at, axis=1)
        return least

    @cached_property
    def _least_at(self) -> Floats:
        """Return the least c + lambda m of a layer with the largest transient itself."""
        return self.frame.least_at(self.cost[:, None] + self.prices[None, :] * self.memory[:, None])

    @cached_property
    def least_beyond(self) -> Floats:
        """Return the least reduced cost of a layer with the largest transient itself.

        Shape [kinds, thresholds, prices]; inf where a kind has no such choice.
        """
        own = self._least_at
        beyond = np.full_like(own, np.inf)
        np.subtract(own, self.least_priced, out=beyond, where=np.isfinite(own))
        return beyond

    def bounds_of(self, held: Integers) -> Floats:
        """Return lower bounds of many loads, `held` [loads, kinds], [loads, thresholds]."""
        kinds, *shape = self.least_priced.shape
        loads = held[:, :kinds].astype(np.float64)
        priced = np.minimum(self.least_priced, _NEVER).reshape(kinds, -1)
        total = (loads @ priced).reshape(len(held), *shape)
        paid = self.prices * (self.capacity - self.thresholds)[:, None]
        least = (total + (self.least_beyond.min(axis=0) - paid)).max(axis=2)
        absent = np.asarray(held[:, kinds:].any(axis=1))[:, None] | (least > _NEVER / 2.0)
        return np.asarray(np.where(absent, np.inf, least))

    def bounds(self, held: Integers) -> tuple[Floats, Floats]:
        """Return lower bounds by the largest transient, with the price of each, [thresholds]."""
        used = np.flatnonzero(held)
        room = self.capacity - self.thresholds
        total = np.tensordot(held[used].astype(np.float64), self.least_priced[used], axes=1)
        bound = total - self.prices[None, :] * room[:, None] + self.least_beyond[used].min(axis=0)
        best = bound.argmax(axis=1)
        return bound[np.arange(len(best)), best], self.prices[best]


def hull_slopes(cost: Sequence[float], memory: Sequence[float]) -> list[float]:
    """Return the slopes of the lower hull of (memory, cost), the flattest first."""
    corners: list[tuple[float, float]] = []
    slopes: list[float] = []
    for own, held in sorted(zip(cost, memory, strict=True)):
        if not corners:
            corners.append((own, held))
            continue
        if held >= corners[-1][1]:
            continue
        slope = (own - corners[-1][0]) / (corners[-1][1] - held)
        while slopes and slope <= slopes[-1]:
            slopes.pop()
            corners.pop()
            slope = (own - corners[-1][0]) / (corners[-1][1] - held)
        slopes.append(slope)
        corners.append((own, held))
    return slopes


def knapsack_of(instance: Instance, rank: int, costs: Sequence[Floats]) -> Knapsack:
    """Return the choices of a rank with its limits; `costs` are [stages, choices] by kind."""
    kinds = instance.kinds
    return Knapsack(
        kind=np.repeat(np.arange(len(kinds)), [len(kind.choice) for kind in kinds]),
        cost=np.concatenate([cost[rank] for cost in costs]),
        memory=np.concatenate([kind.memory[rank] for kind in kinds]),
        transient=np.concatenate([kind.transient[rank] for kind in kinds]),
        host=np.concatenate([kind.host[rank] for kind in kinds]),
        capacity=float(instance.capacity_bytes[rank] - instance.stage_bytes[rank]),
        host_capacity=float(instance.host_capacity_bytes[rank]),
    )


def key_of(instance: Instance, rank: int, knapsack: Knapsack) -> tuple[object, ...]:
    """Return what makes a rank's knapsack equal to another's."""
    columns = (knapsack.cost, knapsack.memory, knapsack.transient, knapsack.host)
    pinned = tuple(k for k, kind in enumerate(instance.kinds) if kind.pinned_stage == rank)
    same = tuple(column.tobytes() for column in columns)
    return (*same, pinned, knapsack.capacity, knapsack.host_capacity)
