"""Batched bounds: lower bounds of thousands of configurations at once.

Rough: a bound of each configuration's step from a few numbers of its prices.

With rho repeats, c_k layers of kind k, their least pace t_kd on devices of kind d, of which there
are p_d ranks, and a weight w of the fill that is one for all its parts,

    step >= rho (sum_k c_k y_k) / (sum_d p_d / t_d) + w sum_k c_k min_d t_kd

where t_d = sum_k c_k t_kd is the chain's pace on one device and y_k = min_d t_kd / t_d the least
share of it that a layer is. No rank takes longer than the largest pace T: p_d T is no less than
what devices of kind d hold takes, and that is t_d y_k for each of their layers at the least. On
devices of one kind it says that T is no less than the mean (B2 of `planner.ilp.lagrangian_bound`).
The fills of all ranks together weigh every layer once; where forward and gradients weigh
differently, forward and inputs' gradients count that are the least anywhere. What ranks send is
added to both. Of large spaces this tells most of what is never looked into, at a choice for each
layer.

Holding: what thousands of configurations hold at the least, and whether that may fit.

Arrays are [groups, rows], as in Screen.

Screen: bounds B1 to B5 of `planner.ilp.lagrangian_bound` for thousands of configurations at once.

Ranks of a configuration are taken in a few groups (`planner.ilp.batched_chains`), each with the
least of its members, so that all configurations have arrays of one shape: [groups, rows]. Every
number is a lower bound as a group's is one of each of its ranks. Levels and sums are those of
`planner.ilp.batched_chains`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from planner.cost.configuration import Booleans, Choice, Choices, Floats, Integers, LayerChoices
from planner.ilp.batched_chains import (
    Column,
    Layer,
    Options,
    PlainLayer,
    Pools,
    Ranks,
    layer_fill,
    layer_omega,
    of_rows,
    on_groups,
    picked,
    price_scale,
    unbeaten,
    weighs_alike,
)
from planner.ilp.cost_arrays import HeldSheet, Spent, SpentSheet
from planner.ilp.settings import (
    HOST_PRICES,
    MEMORY_PRICES,
    ROUNDING,
)
from planner.schema.strategy import ActivationCheckpointing


def rough_choices(choices: Sequence[Choice]) -> LayerChoices:
    """Return the choice under which no layer's pace is more than under any of `choices`.

    It is ZeRO-1 with the least checkpointing of them, whether that is among them or not: stage 0
    may cast weights, stages 2 and 3 reduce or gather with every micro-batch, and recompute adds
    more than it hides. Nor is the forward part of the pace more, or that of inputs' gradients;
    that of weights' gradients is less where recompute hides what they wait for.
    """
    order = list(ActivationCheckpointing)
    kept = order[min(order.index(choice.activation_checkpointing) for choice in choices)]
    block = Choices.of([Choice(zero_stage=1, activation_checkpointing=kept)])
    edge = Choices.of([Choice(zero_stage=1)])
    return LayerChoices(blocks=block, embedding=edge, head=edge)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoughPrices:
    """Of all layers' paces sum_k c_k min_d t_kd and sum_k c_k y_k, and by kind of device t_d.

    Beside them the first of these for forward and for inputs' gradients, `parts`; the least
    boundary between ranks, and the least that a rank pays once a step. All [..., prices].
    """

    least: Floats
    parts: Floats
    shares: Floats
    whole: Floats
    boundary: Floats
    step_end: Floats

    @staticmethod
    def of(sheets: Sequence[SpentSheet]) -> RoughPrices:
        """Return what is to be known of the layers, one sheet for each kind of device."""
        counts = np.array([*sheets[0].block_counts().tolist(), 1, 1], dtype=np.float64)
        layers = [[own.values[:3, 0] for own in sheet.layers] for sheet in sheets]
        paces, forward, weight = np.array(layers).transpose(2, 0, 1, 3)
        whole = np.tensordot(paces, counts, axes=(1, 0))
        fixed = [sheet.fixed for sheet in sheets]
        return RoughPrices(
            least=counts @ paces.min(axis=0),
            parts=np.array(
                [counts @ part.min(axis=0) for part in (forward, paces - forward - weight)]
            ),
            shares=counts @ (paces / whole[:, None]).min(axis=0),
            whole=whole,
            boundary=np.min([own.boundary_seconds.min(axis=(1, 2)) for own in fixed], axis=0),
            step_end=np.min([own.step_end_seconds for own in fixed], axis=0),
        )

    @staticmethod
    def together(parts: Sequence[RoughPrices]) -> RoughPrices:
        """Return the prices of all parts behind one another."""
        names = [field.name for field in fields(RoughPrices)]
        columns = ([getattr(part, name) for part in parts] for name in names)
        return RoughPrices(**dict(zip(names, map(_joined, columns), strict=True)))


def _joined(columns: Sequence[Floats]) -> Floats:
    return np.concatenate(columns, axis=-1)


def rough_bounds(prices: RoughPrices, ranks: Ranks) -> Floats:
    """Return a bound of every step, [rows]; the rows' prices are at `table_rows`."""
    rows = ranks.table_rows
    boundary = prices.boundary[rows]
    speed, meets = np.zeros(len(rows)), np.zeros(len(rows))
    for kind, own in enumerate(1.0 / prices.whole):
        size = np.where(ranks.devices == kind, ranks.size, 0.0)
        speed += size.sum(axis=0) * own[rows]
        meets += (size * ranks.meets).sum(axis=0) * own[rows]
    pace = (prices.shares[rows] + ranks.pace_share * boundary * meets) / speed
    return np.asarray(
        ranks.repeats * pace
        + _fill(prices, ranks)
        + ranks.fill_share * boundary * (ranks.size * ranks.meets).sum(axis=0)
        + prices.step_end[rows]
    )


def _fill(prices: RoughPrices, ranks: Ranks) -> Floats:
    """Return the fills of all ranks together at the least, [rows].

    Of forms that weigh their parts differently those count that take nothing off, and in these
    forward and inputs' gradients: weights' are less where other choices hide them.
    """
    fill = ranks.forms[0, 0] * prices.least[ranks.table_rows]
    rows = np.flatnonzero(~weighs_alike(ranks))
    forms = ranks.forms.take(rows, axis=2)
    parts = prices.parts.take(ranks.table_rows[rows], axis=1)
    known = (forms[:, :2] * parts).sum(axis=1)
    fill[rows] = np.where((forms >= 0.0).all(axis=1), known, 0.0).max(axis=0)
    return np.asarray(fill)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What rows hold: the layers by kind, and what is on a rank in any case."""

    sheets: Sequence[HeldSheet]
    ranks: Ranks
    layers: Sequence[Layer]
    own_bytes: Floats  # [groups, rows]

    @staticmethod
    def of(sheets: Sequence[HeldSheet], ranks: Ranks, refused: Booleans) -> Holding:
        """Return what all rows hold, which refuse the same choices of blocks, [choices, 1]."""
        none = np.zeros((1, 1), dtype=bool)
        free = len(sheets[0].block_counts())
        layers = [
            Layer(held=held, ranks=ranks, refused=refused if place < free else none)
            for place, held in enumerate(zip(*(t.layers for t in sheets), strict=True))
        ]
        own = _least_transient(ranks, layers) + _exchanged_bytes(sheets, ranks)
        return Holding(sheets=sheets, ranks=ranks, layers=layers, own_bytes=own)

    def of_rows(self, rows: Integers) -> Holding:
        """Return what some of the rows hold."""
        return Holding(
            sheets=self.sheets,
            ranks=of_rows(self.ranks, rows),
            layers=[layer.of_rows(rows) for layer in self.layers],
            own_bytes=self.own_bytes.take(rows, axis=1),
        )

    def fit_on_devices(self) -> Pools:
        """Return device bytes less what the limits allow, in pools."""
        options = [Options.lone(each.memory(), each.refused) for each in self.layers]
        free = np.zeros((1, len(self.ranks.least_blocks)))
        least = [each.least(free) for each in options]
        return Pools.of_ranks(self.ranks, self.sheets[0].block_counts(), least, -self.slack()[None])

    def fit(self) -> Pools:
        """Return device bytes with a price on host bytes, less what the limits allow, in pools."""
        capacity = self._capacity()
        host = self._on_devices([sheet.limits.host_capacity_bytes for sheet in self.sheets])
        scale = capacity.max(axis=0) / np.maximum(host.max(axis=0), 1.0)
        grid = HOST_PRICES[1::2, None] * scale
        options = [Options.of(each.memory(), each.host(), each.refused) for each in self.layers]
        least = [each.least(grid) for each in options]
        limits = capacity + grid[:, None] * host
        return Pools.of_ranks(
            self.ranks, self.sheets[0].block_counts(), least, self.own_bytes - limits
        )

    def slack(self) -> Floats:
        """Return the bytes that are left for layers, [groups, rows]."""
        return self._capacity() - self.own_bytes

    def tolerance(self) -> Floats:
        """Return the bytes that are taken for rounding, [rows]."""
        return np.asarray(ROUNDING * self._capacity().max(axis=0))

    def _capacity(self) -> Floats:
        return self._on_devices([sheet.limits.live_capacity_bytes for sheet in self.sheets])

    def _on_devices(self, values: Sequence[float]) -> Floats:
        """Return a number of each kind of device on every group, [groups, rows]."""
        return np.asarray(np.array(values)[self.ranks.devices])


def _least_transient(ranks: Ranks, layers: Sequence[Layer]) -> Floats:
    """Return the least transient of a rank, [groups, rows].

    A rank holds a block, so that its transient is at least the least of any block, and at least
    the least of a layer that is pinned to it.
    """
    rows = np.arange(len(ranks.first))
    least: Floats = np.min([layer.transient() for layer in layers[:-2]], axis=0)
    for group, layer in zip((ranks.first, ranks.last), layers[-2:], strict=True):
        own = np.maximum(least[group, rows], layer.transient()[group, rows])
        least[group, rows] = own
    return least


def _exchanged_bytes(sheets: Sequence[HeldSheet], ranks: Ranks) -> Floats:
    """Return bytes that a rank holds for its neighbours whatever it holds, [groups, rows]."""
    rows = np.arange(len(ranks.first))
    sent = np.array([sheet.fixed.sent_bytes.min(axis=1) for sheet in sheets])
    buffers = np.array([sheet.fixed.buffer_bytes.min(axis=1) for sheet in sheets])
    places = (ranks.devices, ranks.table_rows)
    sends = ranks.meets // 2  # at the least: a rank in the middle receives as often as it sends
    once_more = np.where(ranks.first == ranks.last, 0.0, ranks.meets[ranks.first, rows] % 2)
    sends[ranks.first, rows] += once_more
    return np.asarray(sends * ranks.in_flight * sent[places] + ranks.meets * buffers[places])


SecondsOf = Callable[[Integers], tuple[Sequence[SpentSheet], Integers]]
"""Says how long things take in some rows: sheets of each kind of device, and the rows' in these."""


def quick_bounds(
    sheets: Sequence[SpentSheet], ranks: Ranks, *, stage_count: int
) -> tuple[Floats, Floats]:
    """Return B1, B2 and B4 without memory, of rho T + U and of the fill, each [rows].

    The sheets' choices are `stage_count` ZeRO stages with the least paces, and then as many with
    the least ends, once for each way to keep the optimiser, which no pace depends on.
    """
    totals = sheets[0].block_counts()
    layers = [
        [PlainLayer.of(costs, stage_count) for costs in each]
        for each in zip(*(sheet.layers for sheet in sheets), strict=True)
    ]
    both = [on_groups([plain.omega(ranks) for plain in each], ranks)[None] for each in layers]
    fill = [on_groups([plain.fill(ranks) for plain in each], ranks)[None] for each in layers]
    exchange = ranks.meets * _least_boundary(sheets, ranks)
    own = ranks.repeats * ranks.pace_share * exchange + _step_end(sheets, ranks)
    level = Pools.of_ranks(ranks, totals, both, own[None]).least_level()
    return level, Pools.of_ranks(
        ranks, totals, fill, (ranks.fill_share * exchange)[None]
    ).least_sum()


def memory_bounds(
    held: Sequence[HeldSheet],
    ranks: Ranks,
    *,
    seconds_of: SecondsOf,
    fills: Floats,
    limits: Floats,
    refused: Booleans,
) -> Floats:
    """Return the same with memory priced, inf where the leanest choices do not fit, [rows].

    The rows of `ranks` are places in the sheets of `held`. What takes how long is asked of
    `seconds_of` for those alone that fit. `fills` [rows] are bounds of the fill that are known.
    `limits` [rows] are the steps that plans must be below to matter: what is above is not bounded
    closer. `refused` [choices, rows] are choices of blocks that a configuration cannot have; rows
    with the same are taken together.
    """
    bounds = np.full(len(limits), np.inf)
    found = []
    for own in _alike(refused):
        whole = Holding.of(held, of_rows(ranks, own), refused[:, own[:1]])
        rows = _fitting(whole)
        if len(rows):
            found.append((own[rows], whole.of_rows(rows)))
    if not found:
        return bounds
    seconds, places = seconds_of(np.concatenate([rows for rows, _ in found]))
    for rows, fitting in found:
        own, places = places[: len(rows)], places[len(rows) :]
        chains = _Chains(held=fitting, seconds=seconds, ranks=picked(ranks, rows, own))
        bounds[rows] = _bounds_within(chains, fills=fills[rows], limits=limits[rows])
    return bounds


def _alike(refused: Booleans) -> Iterator[Integers]:
    """Yield the rows that refuse the same choices."""
    left = np.arange(refused.shape[1])
    while len(left):
        same = (refused[:, left] == refused[:, left[:1]]).all(axis=0)
        yield left[same]
        left = left[~same]


def _bounds_within(chains: _Chains, *, fills: Floats, limits: Floats) -> Floats:
    """Return bounds of rows that may fit, close ones of those below their limits."""
    bounds: Floats = chains.both(multipliers=MEMORY_PRICES[::2]).least_level() + fills
    rows = np.flatnonzero(bounds < limits)
    if len(rows):
        chains = chains.of_rows(rows)
        filling = np.maximum(chains.fill().least_sum(), fills[rows])
        bounds[rows] = chains.both().least_level() + filling
    return bounds


def _fitting(held: Holding) -> Integers:
    """Return rows in which the leanest choices may fit.

    Device memory alone refuses most of the others; then host memory has a price.
    """
    rows = _with_room(held, held.fit_on_devices())
    return rows[_with_room(left := held.of_rows(rows), left.fit())] if len(rows) else rows


def _with_room(held: Holding, fit: Pools) -> Integers:
    """Return the rows of pools of bytes that may fit."""
    has_room = fit.has_room(fit.rooms(np.zeros(len(fit.least))))
    return np.flatnonzero(has_room & (fit.least_level() <= held.tolerance()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chains:
    """The chains of rows with a price on memory, in pools: omega and fills.

    The rows of `ranks` are places in the sheets of `seconds`.
    """

    held: Holding
    seconds: Sequence[SpentSheet]
    ranks: Ranks
    kept: dict[tuple[str, int], Integers] = field(default_factory=dict)

    def of_rows(self, rows: Integers) -> _Chains:
        """Return the chains of some of the rows, with the choices that matter in all of them."""
        own = of_rows(self.ranks, rows)
        return replace(self, held=self.held.of_rows(rows), ranks=own)

    def both(self, *, multipliers: Floats = MEMORY_PRICES) -> Pools:
        """Return omega with memory priced."""
        own = self.ranks.repeats * self.ranks.pace_share * self._exchange()
        own = own + _step_end(self.seconds, self.ranks)
        costs = [layer_omega(layer, self.ranks) for layer in self._layers()]
        return self._priced("omega", costs, own, multipliers=multipliers)

    def fill(self) -> Pools:
        """Return fills with memory priced."""
        own = self.ranks.fill_share * self._exchange()
        costs = [layer_fill(layer, self.ranks) for layer in self._layers()]
        return self._priced("fill", costs, own, multipliers=MEMORY_PRICES[::2])

    def _layers(self) -> list[tuple[Spent, ...]]:
        """Return every layer on each kind of device."""
        return list(zip(*(sheet.layers for sheet in self.seconds), strict=True))

    def _priced(
        self, name: str, costs: Sequence[Column], own: Floats, *, multipliers: Floats
    ) -> Pools:
        totals = self.seconds[0].block_counts()
        options = [self._options((name, place), cost) for place, cost in enumerate(costs)]
        grid = multipliers[:, None] * price_scale(options[: len(totals)], totals)
        least = [each.least(grid) for each in options]
        return Pools.of_ranks(self.ranks, totals, least, own - grid[:, None] * self.held.slack())

    def _options(self, key: tuple[str, int], cost: Column) -> Options:
        """Return the choices of a layer that matter: those that did in the first rows asked for."""
        layer = self.held.layers[key[1]]
        if key not in self.kept:
            self.kept[key] = unbeaten(cost, layer.memory(), layer.refused)
        return Options.of(cost, layer.memory(), layer.refused, kept=self.kept[key])

    def _exchange(self) -> Floats:
        return np.asarray(self.ranks.meets * _least_boundary(self.seconds, self.ranks))


def _least_boundary(sheets: Sequence[SpentSheet], ranks: Ranks) -> Floats:
    """Return seconds of the cheapest boundary anywhere, [rows]."""
    each = [sheet.fixed.boundary_seconds.min(axis=(1, 2)) for sheet in sheets]
    least: Floats = np.min(each, axis=0)[ranks.table_rows]
    return least


def _step_end(sheets: Sequence[SpentSheet], ranks: Ranks) -> Floats:
    """Return what a rank of each group pays once a step, [groups, rows]."""
    end = np.array([sheet.fixed.step_end_seconds for sheet in sheets])
    own: Floats = end[ranks.devices, ranks.table_rows]
    return own
