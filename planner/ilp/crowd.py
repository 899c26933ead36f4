"""Crowd: which of many configurations have no plan below their limits, all at once.

With a limit Z on the step, the fills S, the largest pace rho T, the largest end U and the largest
omega W of any plan below it, S + max(W, rho T + U) < Z. Each is bounded from what loads cost on
every rank (`planner.ilp.stack`), by what ranks can hold together; in turn the bounds leave fewer
loads and fewer choices:

G1. A rank's omega is at most Z - S, its pace Z - S - U, its end Z - S - rho T, and its fill what
    the least fills of the others leave.
G2. What a rank holds of anything, in layers of a kind or in all, is no less than what the others
    leave at their most, and no more than what they leave at their least.
G3. A choice is in no such plan if one layer of it, beside the least of all that its rank surely
    holds, exceeds a limit of G1 or the memory.
G4. Over all ways in which loads make up the chain, the least maxima of pace, end and omega, and the
    least sum of fills, by dynamic programming (`planner.ilp.crowd_ways`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.crowd_ways import Layout, Likeness, Ways, layout_of, ways_of
from planner.ilp.instance import Instance
from planner.ilp.stack import Prices, Stack

_ROUNDING = 1e-9
_ROUNDS = 3
_TURNS = 3
_CELLS_MOST = 4_000_000


_NAMES = ("fill", "pace", "end", "both")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Of the fills, the largest pace, the largest end and the largest omega, what is known."""

    fill: Floats
    pace: Floats
    end: Floats
    both: Floats

    def rest(self) -> Floats:
        """Return the bound of all but the fills, where these are bounds [rows]."""
        return np.asarray(np.maximum(self.both, self.pace + self.end))

    def step(self) -> Floats:
        """Return the bound of the step, where these are bounds [rows]."""
        return np.asarray(self.fill + self.rest())

    def raised(self, **found: Floats) -> Parts:
        """Return bounds that are no less than some others."""
        return replace(
            self, **{name: np.maximum(getattr(self, name), own) for name, own in found.items()}
        )


@dataclass(slots=True, kw_only=True)
class _Left:
    """What plans below the `limits` [rows] may have: loads in `mask` [rows, ranks, loads].

    `parts` are bounds of them, [rows]. `measures` [rows, measures, loads] is what G2 counts of
    loads, `totals` [rows, measures] of the chain.
    """

    limits: Floats
    mask: Booleans
    parts: Parts
    measures: Floats
    totals: Floats

    @staticmethod
    def of(limits: Floats, mask: Booleans, measured: tuple[Floats, Floats]) -> _Left:
        """Return all plans."""
        none = np.zeros(len(limits))
        parts = Parts(fill=none, pace=none, end=none, both=none)
        measures, totals = measured
        return _Left(limits=limits, mask=mask, parts=parts, measures=measures, totals=totals)

    def of_rows(self, rows: Integers) -> _Left:
        """Return what is left of some rows."""
        parts = Parts(**{name: getattr(self.parts, name)[rows] for name in _NAMES})
        return _Left(
            limits=self.limits[rows],
            mask=self.mask[rows],
            parts=parts,
            measures=self.measures[rows],
            totals=self.totals[rows],
        )

    def is_open(self) -> Booleans:
        """Return which rows may have a plan, [rows]."""
        return np.asarray(self.parts.step() < self.limits)

    def most(self) -> Parts:
        """Return G1, [rows] each: the fill's is what is left for all ranks."""
        eased, known = self.limits * (1.0 + _ROUNDING), self.parts
        room = eased - known.fill
        return Parts(
            fill=eased - known.rest(), pace=room - known.end, end=room - known.pace, both=room
        )

    def limit(self, tables: Parts) -> None:
        """Leave the loads that keep G1 alone, and bound the parts by each rank's least."""
        least = {name: self._least(getattr(tables, name)) for name in _NAMES}
        fill = least.pop("fill")
        highest = {name: own.max(axis=1) for name, own in least.items()}
        self.parts = self.parts.raised(fill=fill.sum(axis=1), **highest)
        others = fill.sum(axis=1, keepdims=True) - fill
        self._keep(tables, tables.fill + others[:, :, None])

    def _keep(self, tables: Parts, through: Floats) -> None:
        """Leave the loads that keep G1: `through` [rows, ranks, loads] is a sum of all fills."""
        most = self.most()
        self.mask &= through <= most.fill[:, None, None]
        for name in _NAMES[1:]:
            self.mask &= getattr(tables, name) <= getattr(most, name)[:, None, None]

    def _least(self, table: Floats) -> Floats:
        """Return the least of each rank, the limit where it has no load, [rows, ranks]."""
        least = np.where(self.mask, table, np.inf).min(axis=2)
        return np.where(np.isfinite(least), least, self.limits[:, None])

    def share(self) -> None:
        """Leave the loads that keep G2."""
        for place in range(self.measures.shape[1]):
            own, total = self.measures[:, place, None], self.totals[:, place, None]
            most = np.where(self.mask, own, 0.0).max(axis=2)
            least = np.where(self.mask, own, np.inf).min(axis=2)
            least = np.where(np.isfinite(least), least, 0.0)
            rounding = _ROUNDING * total
            fewest = total - (most.sum(axis=1, keepdims=True) - most) - rounding
            largest = total - (least.sum(axis=1, keepdims=True) - least) + rounding
            self.mask &= (own >= fewest[:, :, None]) & (own <= largest[:, :, None])

    def follow(self, ways: Ways, tables: Parts) -> None:
        """Bound the parts over all ways (G4), and leave the loads of those that keep G1."""
        own = {name: np.where(self.mask, getattr(tables, name), np.inf) for name in _NAMES}
        fill, through = ways.sums_through(own.pop("fill"))
        found = {name: ways.least_maximum(table) for name, table in own.items()} | {"fill": fill}
        self.parts = self.parts.raised(
            **{n: np.where(np.isfinite(v), v, self.limits) for n, v in found.items()}
        )
        self._keep(tables, through)


def bounds_below(instances: Sequence[Instance], limits: Sequence[float]) -> Floats:
    """Return a number for each instance that no plan below its limit is below, the limit at most.

    It is 0 where nothing is known. Limits are finite.
    """
    bounds, most = np.zeros(len(instances)), np.array(limits, dtype=np.float64)
    alike: dict[Likeness, list[int]] = {}
    for place, instance in enumerate(instances):
        alike.setdefault(Likeness.of(instance), []).append(place)
    for likeness, places in alike.items():
        layout = layout_of(likeness)
        if layout is None:
            continue
        size = max(_CELLS_MOST // (12 * layout.allowed.size), 1)
        for start in range(0, len(places), size):
            own = places[start : start + size]
            bounds[own] = _bounds([instances[place] for place in own], layout, most[own])
    return bounds


def _bounds(instances: Sequence[Instance], layout: Layout, limits: Floats) -> Floats:
    """Return the bounds of instances with one layout, [rows]."""
    stack, loads = Stack.of(instances), layout.loads
    shape, eased = (len(instances), *layout.allowed.shape), stack.eased()
    prices = _priced(eased)
    linear = Parts(**{name: own.linear(loads).reshape(shape) for name, own in prices.items()})
    mask = layout.allowed & eased.fits(loads).reshape(shape)
    left = _Left.of(limits, mask, _measured(eased, prices["both"], layout))
    for _ in range(_ROUNDS):
        left.limit(linear)
        left.share()
    bounds, rows = np.minimum(left.parts.step(), limits), np.arange(len(limits))
    for _ in range(_TURNS):
        own = np.flatnonzero(left.is_open())
        if not len(own):
            break
        is_dead = _is_dead(stack, prices, left, layout)
        rows, stack, left = rows[own], stack.of_rows(own, is_dead), left.of_rows(own)
        prices = _priced(stack)
        _follow(stack, prices, left, layout)
        bounds[rows] = np.minimum(left.parts.step(), left.limits)
    return bounds


def _follow(stack: Stack, prices: dict[str, Prices], left: _Left, layout: Layout) -> None:
    """Bound what is left by every load's transients, and over all ways."""
    tables = _tables(stack, prices, left.mask, layout)
    for _ in range(_ROUNDS):
        left.limit(tables)
        left.share()
    ways = ways_of(layout, left.mask & left.is_open()[:, None, None])
    if ways is not None:
        for _ in range(_ROUNDS):
            left.follow(ways, tables)


def _priced(stack: Stack) -> dict[str, Prices]:
    """Return what layers cost with memory priced, by part."""
    costs = (stack.fills(), stack.paces(), stack.ends(), stack.both())
    return {name: stack.priced(cost) for name, cost in zip(_NAMES, costs, strict=True)}


def _tables(stack: Stack, prices: dict[str, Prices], mask: Booleans, layout: Layout) -> Parts:
    """Return what the loads of a mask cost at the least, inf elsewhere."""
    row, rank, load = np.nonzero(mask)
    member, held = row * mask.shape[1] + rank, layout.loads[load]
    found = {}
    tables = stack.tables(list(prices.values()), member, held)
    for name, least in zip(prices, tables, strict=True):
        found[name] = np.full(mask.shape, np.inf)
        found[name][row, rank, load] = least
    return Parts(**found)


def _measured(stack: Stack, prices: Prices, layout: Layout) -> tuple[Floats, Floats]:
    """Return what G2 counts of loads, [rows, measures, loads], and of the whole chain.

    They are the blocks, those of each kind, and what these cost and hold at the least anywhere.
    """
    kinds = len(layout.counts)
    shape = (*stack.shape, kinds)
    omega = prices.least[:, :, -1, 0].reshape(shape).min(axis=1)
    held = stack.leanest().reshape(shape).min(axis=1)
    plain = np.broadcast_to(
        np.vstack([np.ones(kinds), np.eye(kinds)]), (len(held), kinds + 1, kinds)
    )
    weights = np.concatenate([plain, omega[:, None], held[:, None]], axis=1)
    return weights @ layout.loads.T, weights @ layout.counts


def _is_dead(
    stack: Stack, prices: dict[str, Prices], left: _Left, layout: Layout
) -> tuple[Booleans, Booleans]:
    """Return the choices that G3 leaves out, free and pinned ones [columns]."""
    held = np.where(left.mask[..., None], layout.loads, layout.counts)
    sure, most = held.min(axis=2).reshape(-1, len(layout.counts)), left.most()
    free, pinned = (np.zeros(len(each.member), dtype=bool) for each in (stack.free, stack.pinned))
    for name in _NAMES[1:]:
        own, limit = prices[name], np.repeat(getattr(most, name), stack.shape[1])[:, None]
        base = own.offset[:, 0]
        surely = base + np.einsum("mk,mki->mi", sure, own.least[:, :, -1])
        rounding = _ROUNDING * (np.abs(limit) + np.abs(surely) + np.abs(base))
        spare = limit - surely + rounding
        free |= (own.beyond[0] > spare[stack.free.member]).any(axis=1)
        pinned |= (own.beyond[1] > spare[stack.pinned.member]).any(axis=1)
    return free, pinned
