"""Lagrangian bound: what no plan of one configuration can beat.

With objective S + rho T + U (S = sum of fills, T the largest pace, U the largest end, rho the
schedule's repeats) and omega = rho tau + u of a layer:

B1. rho T + U >= max_r (rho t_r + u_r), since both maxima are at least each rank's own.
B2. A maximum over ranks is at least any weighted mean of them.
B3. For lambda >= 0, any feasible rank with counts a has
    sum omega >= sum_k a_k min_s (omega + lambda mem) - lambda (cap - fixed - least transient),
    because the price lambda is paid on a constraint that holds (weak duality). The largest over
    several lambda is c_r(a), which grows with a.
B4. Some W keeps every rank's c_r <= W and all layers placed; the least such W is a lower bound.
    It is bounded by B2 with weights that make a layer cost the same on any rank, and by whole
    layers: under W a rank has room for so many of some kinds, and all of these are placed.
B5. S >= sum_r c_r(a_r) in fill alone, with every layer at its cheapest rank.
B6. Where every rank holds one part of the chain, in the order of the ranks, B4 holds of cuts: with
    each rank filled from the one before on, as far as c_r stays within W, W is below every plan's
    largest c_r if blocks are left behind the last. Filled from both ends, cuts have windows, and
    B5 holds with as many blocks of a kind on a rank as lie in these.
B7. S + rho T + U >= sum_r (fill_r + y_r omega_r) for weights y that sum to 1, by B2: B5 of both
    together, where what spares a layer's fill adds to its end. A layer weighs the same on any rank:
    y_r is in proportion to 1 / sum_k L_k min_s omega.

`planner.ilp.batched_bounds` has them for thousands of configurations at once; here is one at a
time, at several lambda at once (`PricedChain`). The best lambda for a number of equal layers is a
slope of the lower hull of their choices in the plane of memory and cost, since the bound is concave
and linear between these: each rank has the hull slopes of its own layers as its grid.

A layer of kind k costs price[k, r, i] on rank r at grid point i. A rank costs its offset and the
sum of its layers at the dearest grid point: c_r. Prices are not negative; offsets may be. Two views
of a chain:

- `ChainLevels`: ranks in the order of the chain, so that cuts decide.
- `PoolLevels`: anything; layers are shared out by weight, without regard to where they stand.

`reduction` says what no plan below a cutoff Z can have, so that the program need not say it. With
the bounds S', U' and so on:

R1. rho T + U <= Z - S' and rho T <= Z - S' - U': limits of each rank's omega and pace, beside that
    of its memory. Each limit leaves windows to what ranks hold.
R2. A rank surely holds some layers. With those at their least price, n layers of choice s cost at
    least n (price_s - least price) more: the most n that the limits leave, at any grid point,
    bounds n[r,k,s]; often by 0.
R3. On one rank the micro-batches in flight are known, and more choices are dominated. Where virtual
    stages count apart, each may hold more or fewer micro-batches than the rank's g: only a choice
    with no less static memory, and that keeps no less of a micro-batch, is dominated. R1 and R2
    hold then too, as C5 does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.instance import Instance, Kind, beaten, everywhere
from planner.ilp.settings import (
    CONFIGURATIONS_KEPT,
    FEW_KEPT,
    FINE_ROUNDING,
    MEMORY_PRICES,
    ROUNDING,
    TINY,
)

Measure = Literal["fill", "pace", "omega", "share"]
"""What a rank costs: its fill, its pace, omega (the paces of all micro-batches and the end), or its
fill and its share of a mean omega.
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PricedChain:
    """Prices of every layer and choice, by kind [stages, grid, choices]. It equals itself alone.

    `offset` [stages, grid] is what a rank costs before it holds a block: its own cost, less what
    the price of its memory is worth, and the least of the layers that are pinned to it.
    """

    instance: Instance
    prices: tuple[Floats, ...]
    offset: Floats

    def least_prices(self) -> Floats:
        """Return the least price of every free kind, [free kinds, stages, grid]."""
        return np.stack([self.prices[k].min(axis=2) for k in self.instance.free_kinds])


@lru_cache(maxsize=4 * CONFIGURATIONS_KEPT)
def cost_chain(instance: Instance, measure: Measure) -> PricedChain:
    """Return what layers cost by a measure, with memory priced: lower bounds of what ranks have.

    None has more than T of paces, or rho T + U of omegas; fills and shares are summed over ranks.
    """
    grid, prices = _priced(instance.kinds, measure, instance.repeat_count)
    slack = instance.capacity_bytes - instance.stage_bytes - least_transient(instance)
    omega = instance.repeat_count * instance.stage_pace + instance.stage_end
    weights = _weights(instance.kinds, instance.repeat_count)
    fill = instance.stage_fill
    own = _measured(measure, fill=fill, pace=instance.stage_pace, omega=omega, weights=weights)
    return _chain(instance, prices, own[:, None] - grid * slack[:, None])


@lru_cache(maxsize=FEW_KEPT)
def _priced(
    kinds: tuple[Kind, ...], measure: Measure, repeat_count: float
) -> tuple[Floats, tuple[Floats, ...]]:
    """Return every rank's lambda [stages, grid], and prices by kind [stages, grid, choices].

    Both are those of the layers alone: instances of one configuration with other windows for the
    cuts share them.
    """
    weights = _weights(kinds, repeat_count)[:, None]
    omegas = [scaled(kind, repeat_count) for kind in kinds]
    costs = [
        _measured(measure, fill=kind.fill, pace=kind.pace, omega=omega, weights=weights)
        for kind, omega in zip(kinds, omegas, strict=True)
    ]
    grid = _price_grid(kinds, costs)
    prices = tuple(
        cost[:, None, :] + grid[:, :, None] * kind.memory[:, None, :]
        for kind, cost in zip(kinds, costs, strict=True)
    )
    return grid, prices


def _measured(
    measure: Measure, *, fill: Floats, pace: Floats, omega: Floats, weights: Floats
) -> Floats:
    """Return what layers or ranks cost by a measure, [stages, ...]."""
    if measure == "share":
        return fill + weights * omega
    return {"fill": fill, "pace": pace, "omega": omega}[measure]


def _weights(kinds: Sequence[Kind], repeat_count: float) -> Floats:
    """Return weights that sum to 1, by which all blocks' least omega is the same on any rank."""
    free = [kind for kind in kinds if kind.pinned_stage is None]
    omega = sum(kind.count * scaled(kind, repeat_count).min(axis=1) for kind in free)
    inverse = 1.0 / np.maximum(omega, TINY)
    return np.asarray(inverse / inverse.sum())


def memory_chain(instance: Instance, host_ratios: Floats) -> PricedChain:
    """Return device bytes + ratio x host bytes of every layer over what a rank's limits allow.

    `host_ratios` is [ratios]. No rank of a plan that fits exceeds 0.
    """
    prices = tuple(
        kind.memory[:, None, :] + host_ratios[None, :, None] * kind.host[:, None, :]
        for kind in instance.kinds
    )
    limits = (
        instance.capacity_bytes[:, None]
        + host_ratios[None, :] * instance.host_capacity_bytes[:, None]
    )
    base = instance.stage_bytes + least_transient(instance)
    return _chain(instance, prices, base[:, None] - limits)


def least_transient(instance: Instance) -> Floats:
    """Return the least transient bytes of each rank, [stages].

    Every rank holds a block, and its transient is at least the least of any block; ranks with
    the embedding or the head have those transients too.
    """
    free = [instance.kinds[k].transient.min(axis=1) for k in instance.free_kinds]
    least: Floats = np.min(free, axis=0)
    for kind in instance.kinds:
        if kind.pinned_stage is not None:
            own = float(kind.transient[kind.pinned_stage].min())
            least[kind.pinned_stage] = max(least[kind.pinned_stage], own)
    return least


def _price_grid(kinds: Sequence[Kind], costs: Sequence[Floats]) -> Floats:
    """Return 0 and the hull slopes of the blocks that each rank may hold, [stages, grid].

    A pinned layer's slopes are left out: it is one of many, and any price gives a bound.
    """
    free = [k for k, kind in enumerate(kinds) if kind.pinned_stage is None]
    slopes = [np.zeros((len(kinds[0].memory), 1))]
    slopes += [_hull_slopes_by_rank(costs[k], kinds[k].memory) for k in free]
    return np.concatenate(slopes, axis=1)


def _hull_slopes_by_rank(cost: Floats, memory: Floats) -> Floats:
    """Return the slopes of the lower hull of (memory, cost) [ranks, choices], [ranks, slopes].

    From the cheapest choice on, the next corner is the one with the least loss of cost for each
    byte saved. Where a rank has fewer corners than others, its last slope is repeated.
    """
    ranks = np.arange(len(cost))
    order = np.lexsort((memory, cost), axis=1)
    corner = order[:, 0]
    slopes: list[Floats] = []
    last = np.zeros(len(cost))
    for _ in range(cost.shape[1]):
        saved = memory[ranks, corner][:, None] - memory
        lost = cost - cost[ranks, corner][:, None]
        slope = np.full_like(cost, np.inf)
        np.divide(lost, saved, out=slope, where=saved > 0.0)
        least = slope.min(axis=1)
        found = np.isfinite(least)
        if not found.any():
            break
        last = np.where(found, least, last)
        slopes.append(last)
        reached = np.where(slope <= least[:, None], memory, np.inf).argmin(axis=1)
        corner = np.where(found, reached, corner)
    return np.stack(slopes, axis=1) if slopes else np.zeros((len(cost), 1))


def _chain(instance: Instance, prices: tuple[Floats, ...], offset: Floats) -> PricedChain:
    for kind, price in zip(instance.kinds, prices, strict=True):
        if kind.pinned_stage is not None:
            offset[kind.pinned_stage] += price[kind.pinned_stage].min(axis=1)
    return PricedChain(instance=instance, prices=prices, offset=offset)


def scaled(kind: Kind, repeat_count: float) -> Floats:
    """Return omega = repeats x pace + end of every choice, [stages, choices]."""
    return repeat_count * kind.pace + kind.end


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """What ranks of any plan hold.

    `least` and `most` [stages] count blocks; `sure` and `room` [stages, kinds] are the least and
    the most blocks of each kind that a rank can have. `cuts` are the earliest and the latest place
    of every cut, [2, stages + 1], where ranks follow one another along the chain.
    """

    least: Integers
    most: Integers
    sure: Integers
    room: Integers
    cuts: Integers | None = None


@lru_cache(maxsize=FEW_KEPT)
def levels_of(chain: PricedChain) -> PoolLevels:
    """Return the most exact view of a chain; those asked for last are kept."""
    return ChainLevels(chain) if chain.instance.is_in_order else PoolLevels(chain)


class PoolLevels:
    """What a chain of prices says of every plan: ranks share the layers of a kind as they like."""

    def __init__(self, chain: PricedChain) -> None:
        """Choose for every rank the grid point that is dearest for an even share."""
        self._instance = chain.instance
        instance = chain.instance
        self._totals = np.array([instance.kinds[k].count for k in instance.free_kinds], dtype=float)
        prices = chain.least_prices()  # [kinds, stages, grid]
        shares = self._totals / instance.stage_count
        dearest = (chain.offset + np.tensordot(shares, prices, axes=1)).argmax(axis=1)
        stages = np.arange(instance.stage_count)
        self._offset: Floats = chain.offset[stages, dearest]
        self._price: Floats = prices[:, stages, dearest]
        self._alone: Floats = (chain.offset + instance.least_blocks * prices.min(axis=0)).max(
            axis=1
        )

    @cached_property
    def _of_whole_layers(self) -> list[tuple[Integers, Floats]]:
        """Return what c_r is at least with n layers of some kinds, n = 1, 2, ... [stages, n].

        Each kind comes by itself, then the two dearest, the three dearest and so on, up to all of
        them: what they cost at the least, beside blocks of the cheapest kind as the rest of a rank.
        """
        order = np.argsort(-self._price.mean(axis=1), kind="stable")
        groups = [np.array([k]) for k in range(len(order))]
        groups += [order[:n] for n in range(2, len(order) + 1)]
        cheapest, found = self._price.min(axis=0)[:, None], []
        for kinds in groups:
            number = np.arange(1.0, self._totals[kinds].sum() + 1.0)
            others = np.maximum(self._instance.least_blocks - number, 0.0)
            own = number * self._price[kinds].min(axis=0)[:, None] + others * cheapest
            found.append((kinds, self._offset[:, None] + own))
        return found

    @cached_property
    def least_level(self) -> float:
        """Return a W that the largest c_r of any plan reaches.

        It is a weighted mean of c_r with weights that make layers cost the same anywhere:
        W >= sum_r y_r c_r >= sum_r y_r offset_r + sum_k L_k min_r (y_r price[k, r]) for weights y
        that sum to 1. Or it is the least with room for all layers of some kinds on all ranks.
        """
        least = float(self._alone.max())
        for kinds, reached in self._of_whole_layers:
            last = int(self._totals[kinds].sum()) - 1
            least = max(least, float(np.partition(reached, last, axis=None)[last]))
        mean = self._totals @ self._price
        if (mean <= 0.0).any():
            return least
        weights = (1.0 / mean) / (1.0 / mean).sum()
        pooled = float(weights @ self._offset)
        return max(least, pooled + float(self._totals @ (weights * self._price).min(axis=1)))

    def least_sum(self) -> float:
        """Return a number that the sum of c_r of any plan reaches.

        It is the sum of offsets with every layer at its cheapest rank.
        """
        pooled = float(self._offset.sum() + self._totals @ self._price.min(axis=1))
        return max(pooled, float(self._alone.sum()))

    def windows(self, limit: float) -> Windows | None:
        """Return what ranks hold in plans with no c_r above `limit`, None if there are none.

        It is how many layers fit on each rank, of all kinds and of each.
        """
        instance, free = self._instance, self._instance.free_kinds
        size = abs(limit) + float(np.abs(self._offset).max())
        if self.least_level > limit + FINE_ROUNDING * size:
            return None
        held = [(own <= limit + ROUNDING * size).sum(axis=1) for _, own in self._of_whole_layers]
        room = np.zeros((instance.stage_count, len(instance.kinds)), dtype=np.int64)
        room[:, free] = np.transpose(held[: len(free)])
        ceiling = instance.block_count - instance.least_blocks * (instance.stage_count - 1)
        most = np.minimum(held[-1], ceiling)
        least = np.maximum(instance.least_blocks, instance.block_count - (int(most.sum()) - most))
        if (most < instance.least_blocks).any() or int(most.sum()) < instance.block_count:
            return None
        return _counted(instance, least, most, room)


class ChainLevels(PoolLevels):
    """The same of a chain whose ranks follow one another along it, so that cuts decide."""

    def __init__(self, chain: PricedChain) -> None:
        """Sum the prices along the chain."""
        super().__init__(chain)
        self._offsets = chain.offset
        prices = chain.least_prices()
        self._cheapest: Floats = prices.min(axis=0)
        place = {kind: i for i, kind in enumerate(chain.instance.free_kinds)}
        order = [place[int(kind)] for kind in chain.instance.block_kinds]
        along = np.moveaxis(prices[order], 0, 2)  # [stages, grid, blocks]
        self._prefix: Floats = np.concatenate(
            [np.zeros_like(along[:, :, :1]), np.cumsum(along, axis=2)], axis=2
        )

    def windows(self, limit: float) -> Windows | None:
        """Return the cuts of all plans with no c_r above `limit`.

        Filling ranks from the first on, each as far as it can, any plan's cuts lie at or before
        these (exchange argument); from the last one back, at or behind.
        """
        allowed = self._allowed(limit)
        if (allowed < self._cheapest).any():
            return None
        earliest, latest = self._earliest(allowed), self._latest(allowed)
        if (earliest > latest).any() or latest[-1] < self._prefix.shape[2] - 1:
            return None
        return chain_windows(self._instance, np.stack([earliest, latest]))

    def _allowed(self, limit: float) -> Floats:
        rounding = FINE_ROUNDING * (abs(limit) + float(self._prefix[:, :, -1].max()))
        return np.asarray(limit + rounding - self._offsets)

    def _latest(self, allowed: Floats) -> Integers:
        """Return each rank filled as far as it can, one layer left for each that follows.

        A rank that the ones before it leave nothing it can take stays empty here: in a plan with
        earlier cuts it may hold other layers, so that refusing it would not be a bound.
        """
        stages, _, length = self._prefix.shape
        placed = [0]
        for stage in range(stages):
            end = length - (stages - 1 - stage)
            held = self._prefix[stage, :, placed[-1] : end]
            within = (held - held[:, :1] <= allowed[stage][:, None]).all(axis=0)
            placed.append(placed[-1] + int(np.count_nonzero(within)) - 1)
        return np.array(placed, dtype=np.int64)

    def _earliest(self, allowed: Floats) -> Integers:
        """Return the same from the last rank back, one layer left for each before."""
        stages, _, length = self._prefix.shape
        left = [length - 1]
        for stage in reversed(range(stages)):
            held = self._prefix[stage, :, stage : left[-1] + 1]
            within = (held[:, -1:] - held <= allowed[stage][:, None]).all(axis=0)
            left.append(left[-1] - int(np.count_nonzero(within)) + 1)
        return np.array(left[::-1], dtype=np.int64)


def everything(instance: Instance) -> Windows:
    """Return the windows of all plans."""
    stages = instance.stage_count
    least = np.full(stages, instance.least_blocks, dtype=np.int64)
    most = np.full(stages, instance.block_count - instance.least_blocks * (stages - 1))
    if instance.is_in_order and not instance.is_uniform:
        return chain_windows(instance, everywhere(instance))
    return _counted(instance, least, most)


def windows_at(instance: Instance, cuts: tuple[int, ...]) -> Windows:
    """Return the windows of plans whose chain is cut at these places."""
    places = np.array(cuts)
    if instance.is_in_order and not instance.is_uniform:
        return chain_windows(instance, np.stack([places, places]))
    loads = np.zeros((instance.stage_count, len(instance.kinds)), dtype=np.int64)
    np.add.at(loads, np.array(instance.holders), np.diff(instance.prefix_counts[places], axis=0))
    counts = loads.sum(axis=1)
    return Windows(least=counts, most=counts, sure=loads, room=loads)


def intersected(one: Windows, other: Windows, instance: Instance) -> Windows | None:
    """Return what two windows leave, None where that is nothing."""
    if one.cuts is not None and other.cuts is not None:
        cuts = np.stack(
            [np.maximum(one.cuts[0], other.cuts[0]), np.minimum(one.cuts[1], other.cuts[1])]
        )
        return chain_windows(instance, cuts) if (cuts[0] <= cuts[1]).all() else None
    least, most = np.maximum(one.least, other.least), np.minimum(one.most, other.most)
    least = np.maximum(least, instance.block_count - (int(most.sum()) - most))
    most = np.minimum(most, instance.block_count - (int(least.sum()) - least))
    if (least > most).any() or int(most.sum()) < instance.block_count:
        return None
    counted = _counted(instance, least, most)
    sure = np.maximum(np.maximum(one.sure, other.sure), counted.sure)
    room = np.minimum(np.minimum(one.room, other.room), counted.room)
    return replace(counted, sure=sure, room=room) if (sure <= room).all() else None


def chain_windows(instance: Instance, cuts: Integers) -> Windows:
    """Return the windows that the earliest and latest cuts leave."""
    prefix = instance.prefix_counts
    earliest, latest = cuts
    start, end = latest[:-1], np.maximum(earliest[1:], latest[:-1])
    return Windows(
        least=np.maximum(earliest[1:] - latest[:-1], instance.least_blocks),
        most=latest[1:] - earliest[:-1],
        sure=prefix[end] - prefix[start],
        room=prefix[latest[1:]] - prefix[earliest[:-1]],
        cuts=cuts,
    )


def _counted(
    instance: Instance, least: Integers, most: Integers, room: Integers | float = np.inf
) -> Windows:
    """Return windows that count blocks, with `room` for each kind, pinned ones aside."""
    totals = np.array([0 if k.pinned_stage is not None else k.count for k in instance.kinds])
    held = np.minimum(np.minimum(totals, most[:, None]), room).astype(np.int64)
    left = totals - (held.sum(axis=0) - held)
    filled = least[:, None] - (held.sum(axis=1, keepdims=True) - held)
    return Windows(least=least, most=most, sure=np.maximum(np.maximum(left, filled), 0), room=held)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveBounds:
    """Lower bounds of a step and of its parts: S, rho T, U, and rho T + U together, in seconds.

    `total` is one of the whole, which may be better than the sum of its parts.
    """

    fill_sum: float
    repeated_pace: float
    largest_end: float
    omega: float
    total: float

    def step_seconds(self) -> float:
        """Return the bound of S + rho T + U."""
        parts = self.fill_sum + max(self.repeated_pace + self.largest_end, self.omega)
        return max(parts, self.total)


def objective_bounds(
    instance: Instance, *, cutoff_seconds: float = float("inf")
) -> ObjectiveBounds | None:
    """Return B3, B4, B5 and B7 of each part, None when no plan fits.

    Where some parts alone exceed the cutoff, the others are left at 0.
    """
    if levels_of(fit_chain(instance)).windows(0.0) is None:
        return None
    found = ObjectiveBounds(
        fill_sum=levels_of(cost_chain(instance, "fill")).least_sum(),
        repeated_pace=0.0,
        largest_end=0.0,
        omega=levels_of(cost_chain(instance, "omega")).least_level,
        total=levels_of(cost_chain(instance, "share")).least_sum(),
    )
    if found.step_seconds() > cutoff_seconds:
        return found
    ends = sum(_least_end(instance, k) for k in range(len(instance.kinds)))
    return replace(
        found,
        repeated_pace=instance.repeat_count * levels_of(cost_chain(instance, "pace")).least_level,
        largest_end=float(instance.stage_end.mean()) + ends / instance.stage_count,
    )


def _least_end(instance: Instance, k: int) -> float:
    kind = instance.kinds[k]
    rows = kind.end if kind.pinned_stage is None else kind.end[kind.pinned_stage]
    return kind.count * float(rows.min())


def least_memory_bytes(instance: Instance) -> float:
    """Return bytes that the fullest device needs beyond its capacity at the least, plus that.

    The capacity is that of the largest device; host memory is taken to be boundless.
    """
    excess = levels_of(memory_chain(instance, np.zeros(1))).least_level
    return float(instance.capacity_bytes.max()) + excess


@lru_cache(maxsize=CONFIGURATIONS_KEPT)
def fit_chain(instance: Instance) -> PricedChain:
    """Return device bytes with a price on host bytes, over what the limits allow.

    For any ratio of the two prices, a rank that keeps both limits keeps their priced sum.
    """
    host = max(float(instance.host_capacity_bytes.max()), 1.0)
    ratios = MEMORY_PRICES * float(instance.capacity_bytes.max()) / host
    return memory_chain(instance, ratios)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """`most[k]` bounds the layers of kind k by [stages, choices]; `windows` what ranks hold."""

    most: tuple[Integers, ...]
    windows: Windows
    bounds: ObjectiveBounds


_Limit = tuple[PricedChain, float]
"""No rank of a plan below the cutoff exceeds the number in the chain's prices."""


@lru_cache(maxsize=CONFIGURATIONS_KEPT)
def reduction(
    instance: Instance,
    *,
    cutoff_seconds: float,
    bounds: ObjectiveBounds | None = None,
    cuts: tuple[int, ...] | None = None,
    in_flight: tuple[float, ...] | None = None,
) -> Reduction | None:
    """Return what plans of at most `cutoff_seconds` have, None if it is proven there are none.

    An infinite cutoff leaves all plans that fit. `bounds` are the instance's where they are known.
    Choices that others beat are left out; `in_flight`, given where virtual stages count apart, are
    the micro-batches of which `memory` has what is kept, [stages]. With `cuts` the chain is cut
    there.
    """
    known = bounds or objective_bounds(instance)
    if known is None or known.step_seconds() > cutoff_seconds * (1.0 + ROUNDING):
        return None
    known_windows = everything(instance) if cuts is None else windows_at(instance, cuts)
    limits = _limits(instance, known, cutoff_seconds)
    windows = _narrowed(instance, known_windows, limits)
    if windows is None:
        return None
    bests = [_undominated(kind, in_flight) for kind in instance.kinds]
    counts = (_most(instance, k, windows, limits) for k in range(len(instance.kinds)))
    most = tuple(np.where(best, own, 0) for best, own in zip(bests, counts, strict=True))
    if not _complete(instance, most):
        return None
    return Reduction(most=most, windows=windows, bounds=known)


def _complete(instance: Instance, most: tuple[Integers, ...]) -> bool:
    """Return whether every kind can be placed and every rank can hold what it must."""
    placed = all(
        int(bound.sum()) >= kind.count for kind, bound in zip(instance.kinds, most, strict=True)
    )
    held = np.sum([most[k].sum(axis=1) for k in instance.free_kinds], axis=0)
    return placed and bool((held >= instance.least_blocks).all())


def _narrowed(instance: Instance, windows: Windows, limits: Sequence[_Limit]) -> Windows | None:
    """Return what the limits leave of the windows, None where that is nothing."""
    left: Windows | None = windows
    for chain, most in limits:
        found = levels_of(chain).windows(most)
        left = None if found is None or left is None else intersected(left, found, instance)
    return left


def _limits(instance: Instance, bounds: ObjectiveBounds, cutoff_seconds: float) -> list[_Limit]:
    """Return R1: each chain with the most that a rank may reach in it."""
    omega_most = cutoff_seconds - bounds.fill_sum
    found = [(fit_chain(instance), 0.0), (cost_chain(instance, "omega"), omega_most)]
    if instance.repeat_count > 0.0:
        pace_most = (omega_most - bounds.largest_end) / instance.repeat_count
        found.append((cost_chain(instance, "pace"), pace_most))
    return [(chain, most + ROUNDING * abs(most)) for chain, most in found if np.isfinite(most)]


def _most(
    instance: Instance,
    k: int,
    windows: Windows,
    limits: Sequence[_Limit],
) -> Integers:
    """Return the most layers of kind k that each rank can hold under each choice (R1 and R2)."""
    kind = instance.kinds[k]
    if kind.pinned_stage is None:
        room = windows.room[:, k]
    else:
        room = np.where(np.arange(instance.stage_count) == kind.pinned_stage, 1, 0)
    most = np.repeat(room[:, None].astype(np.float64), len(kind.choice), axis=1)
    for limit in limits:
        most = np.minimum(most, _affordable(_spare(*limit, windows), limit[0].prices[k]))
    return np.asarray(most.astype(np.int64))


def _spare(chain: PricedChain, most: float, windows: Windows) -> Floats:
    """Return what a limit leaves beside the layers that a rank surely holds, [stages, grid]."""
    sure = windows.sure[:, list(chain.instance.free_kinds)].astype(np.float64)
    held = np.einsum("rk,krg->rg", sure, chain.least_prices())
    rounding = ROUNDING * (abs(most) + np.abs(chain.offset) + held)
    return np.asarray(most - chain.offset - held + rounding)


def _affordable(spare: Floats, price: Floats) -> Floats:
    """Return how many layers of each choice the spare [stages, grid] pays, [stages, choices].

    What a layer costs beyond the least of its kind is paid from the spare, at every grid point.
    """
    extra = price - price.min(axis=2, keepdims=True)
    paid = np.full_like(extra, np.inf)
    np.divide(np.maximum(spare, 0.0)[:, :, None], extra, out=paid, where=extra > 0.0)
    return np.asarray(np.floor(paid.min(axis=1) * (1.0 + ROUNDING) + ROUNDING))


@lru_cache(maxsize=FEW_KEPT)
def _undominated(kind: Kind, in_flight: tuple[float, ...] | None) -> Booleans:
    """Return R3, [stages, choices]."""
    columns = [kind.pace, kind.fill, kind.end, kind.memory, kind.transient, kind.host]
    if in_flight is not None:
        columns[3] = kind.memory - np.array(in_flight)[:, None] * kind.kept
        columns.append(kind.kept)
    return ~beaten(np.stack(columns))
