"""Columns: what layers cost on groups of ranks, for many configurations at once.

Arrays end in the axis of rows, and begin with that of choices where they have one: the least of all
choices is then found in one sweep. What configurations share is priced once: a configuration's
place in the cost tables is `Ranks.table_rows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.cost.layer_costs import LayerBytes, LayerSeconds, MicroBatchSeconds
from planner.ilp.grouping import Ranks, of_rows

_COMPARED_FIRST = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainLayer:
    """Seconds of a layer under the quick bounds' choices on one kind of device.

    `paces` and `ends` [stages, prices] are the least of each ZeRO stage; `parts` are seconds
    forward, of inputs' gradients and of weights', each [choices, prices].
    """

    paces: Floats
    ends: Floats
    parts: tuple[Floats, Floats, Floats]
    least_total: Floats

    @staticmethod
    def of(costs: LayerSeconds, stage_count: int) -> PlainLayer:
        """Return the least of a layer's seconds, in the order that `quick_bounds` asks for."""
        parts = _parts(costs.micro_batch_seconds, slice(None))
        totals = parts[0] + parts[1] + parts[2]
        ends = np.ascontiguousarray(costs.step_end_seconds.total().T[stage_count:])
        return PlainLayer(
            paces=totals[:stage_count],
            ends=ends.reshape(-1, stage_count, ends.shape[1]).min(axis=0),
            parts=parts,
            least_total=totals.min(axis=0),
        )

    def omega(self, ranks: Ranks) -> Floats:
        """Return the least repeats x pace + end, [rows]."""
        own = ranks.table_rows
        omega: Floats = (ranks.repeats * self.paces[:, own] + self.ends[:, own]).min(axis=0)
        return omega

    def fill(self, ranks: Ranks) -> Floats:
        """Return the least seconds of fill and drain, [rows].

        Where forward and gradients weigh alike, the total is all that matters.
        """
        least: Floats = ranks.forms[0, 0] * self.least_total[ranks.table_rows]
        rows = np.flatnonzero(~_weighs_alike(ranks))
        if len(rows):
            some = of_rows(ranks, rows)
            parts = [part[:, some.table_rows] for part in self.parts]
            least[rows] = _largest_form(parts, some).min(axis=0)
        return least


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What one kind of layer holds on every group: [choices, groups, rows].

    `refused` is [choices, rows]. With one kind of device, what all groups have alike has one in the
    place of groups.
    """

    held: Sequence[LayerBytes]
    ranks: Ranks
    refused: Booleans
    memory: Floats  # device bytes with the activations in flight

    @staticmethod
    def of(held: Sequence[LayerBytes], ranks: Ranks, refused: Booleans) -> Layer:
        """Return a layer on the groups of `ranks`; `held` is by kind of device."""
        static = _column([own.static() for own in held], ranks)
        kept = _column([own.activations for own in held], ranks)
        memory = static + ranks.in_flight * kept
        return Layer(held=held, ranks=ranks, refused=refused, memory=memory)

    def of_rows(self, rows: Integers) -> Layer:
        """Return the layer for some of the rows."""
        return Layer(
            held=self.held,
            ranks=of_rows(self.ranks, rows),
            refused=self.refused[:, rows],
            memory=self.memory[..., rows],
        )

    def host(self) -> Floats:
        """Return host bytes with the activations in flight."""
        static = _column([own.host for own in self.held], self.ranks)
        kept = _column([own.host_activations for own in self.held], self.ranks)
        return np.asarray(static + self.ranks.in_flight * kept)

    def transient(self) -> Floats:
        """Return the least transient of any choice, [groups, rows]."""
        each = np.stack([own.transient.min(axis=1) for own in self.held])
        return np.asarray(each[self.ranks.devices, self.ranks.table_rows])

    def least(self, cost: Floats, memory: Floats, grid: Floats) -> Floats:
        """Return the least cost + lambda x memory of the choices, [grid, groups, rows].

        `grid` is [grid, rows].
        """
        if self.refused.any():
            cost = cost + np.where(self.refused, np.inf, 0.0)[:, None]
        kept = _undominated(cost, memory)
        cost, memory = cost[kept], memory[kept]
        priced = np.empty(np.broadcast_shapes(cost.shape, memory.shape))
        least = np.empty((len(grid), *priced.shape[1:]))
        for place, price in enumerate(grid):
            np.multiply(memory, price, out=priced)
            np.add(priced, cost, out=priced)
            least[place] = priced.min(axis=0)
        return least


def _undominated(cost: Floats, memory: Floats) -> Integers:
    """Return choices without those that another one is no worse than on all groups and rows.

    Both are [choices, groups, rows]. Some rows say which are worth comparing on all of them; what
    is left out is beaten by one that stays, so that no least changes.
    """
    some = np.linspace(0, cost.shape[2] - 1, _COMPARED_FIRST).astype(np.int64)
    count = len(cost)
    columns = [values[..., some].reshape(count, -1) for values in (cost, memory)]
    no_worse = np.all([(c[:, None] <= c[None]).all(axis=2) for c in columns], axis=0)
    earlier = np.arange(count)[:, None] < np.arange(count)[None]
    beats = no_worse & (earlier | ~no_worse.T)
    stays = ~beats.any(axis=0)
    beaten = np.flatnonzero(~stays)
    by = (beats & stays[:, None]).argmax(axis=0)[beaten]
    is_so = [(values[by] <= values[beaten]).all(axis=(1, 2)) for values in (cost, memory)]
    stays[beaten] = ~np.all(is_so, axis=0)
    return np.flatnonzero(stays)


def layer_omega(seconds: Sequence[LayerSeconds], ranks: Ranks) -> Floats:
    """Return repeats x pace + end of a layer, [choices, groups, rows]."""
    pace = _column([own.micro_batch_seconds.total() for own in seconds], ranks)
    end = _column([own.step_end_seconds.total() for own in seconds], ranks)
    return np.asarray(ranks.repeats * pace + end)


def layer_fill(seconds: Sequence[LayerSeconds], ranks: Ranks) -> Floats:
    """Return seconds of fill and drain of a layer, [choices, groups, rows]."""
    parts = [_parts(own.micro_batch_seconds, ranks.table_rows) for own in seconds]
    return on_groups([_largest_form(own, ranks) for own in parts], ranks)


def on_groups(values: Sequence[Floats], ranks: Ranks) -> Floats:
    """Return what each kind of device has, [..., rows], on every group, [..., groups, rows].

    With one kind, all groups have the same, once.
    """
    if len(values) == 1:
        return values[0][..., None, :]
    rows = np.arange(len(ranks.table_rows))
    return np.asarray(np.stack(values, axis=-2)[..., ranks.devices, rows])


def _column(values: Sequence[Floats], ranks: Ranks) -> Floats:
    """Return what tables have, [prices, choices] each, on every group, [choices, groups, rows]."""
    return on_groups([np.ascontiguousarray(v[ranks.table_rows].T) for v in values], ranks)


def _parts(seconds: MicroBatchSeconds, rows: Integers | slice) -> tuple[Floats, Floats, Floats]:
    """Return seconds forward, of inputs' gradients and of weights', each [choices, rows]."""
    total = np.ascontiguousarray(seconds.total()[rows].T)
    forward = total * seconds.forward_share[rows].T
    weight = total * seconds.weight_gradient_share[rows].T
    return forward, total - forward - weight, weight


def _largest_form(parts: Sequence[Floats], ranks: Ranks) -> Floats:
    """Return the largest weighted sum of the parts [choices, rows], and not less than 0."""
    fill = np.zeros_like(parts[0])
    for form in ranks.forms:
        weighted = form[0] * parts[0] + form[1] * parts[1] + form[2] * parts[2]
        np.maximum(fill, weighted, out=fill)
    return fill


def _weighs_alike(ranks: Ranks) -> Booleans:
    """Return where forward and both gradients have one weight in all forms of the fill, [rows]."""
    alike: Booleans = (ranks.forms == ranks.forms[0, 0]).all(axis=(0, 1))
    return alike
