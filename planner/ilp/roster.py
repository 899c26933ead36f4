"""Roster: the ranks of one configuration side by side, all of whose loads are priced at once.

The bounds are those of `planner.ilp.knapsack`: by the largest transient, at prices of memory that
are slopes of the hulls of a rank's own choices. Choices of all ranks follow one another; ranks with
fewer transients or prices than others have places without any choice behind theirs. Kinds with one
choice and the least transient, as edges are, cost the same under every other: they are plain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.knapsack import hull_slopes
from planner.ilp.priced_rank import PricedRank
from planner.ilp.rank import Caps, Rank

_NEVER = 1e200
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class Roster:
    """Ranks with their loads, [loads, kinds]; edges are kinds of which some ranks have more."""

    ranks: tuple[Rank, ...]

    def priced(
        self,
        pace_weights: Floats | float,
        end_weights: Floats | float,
        within: Caps,
        *,
        fill_weight: float = 1.0,
    ) -> tuple[PricedRank, ...]:
        """Return the least costs of the loads at weights of the pace, the end and the fill.

        The former two are by rank [ranks], or one for all.
        """
        count = len(self.ranks)
        paid = self._repeats * pace_weights
        ends = np.zeros(count) + end_weights
        cost = fill_weight * self._fill
        cost += paid[self._owner] * self._pace
        cost += ends[self._owner] * self._end
        grid = self._grid(cost)
        plain, least, beyond = self._by_price(cost, grid)
        bounds = self._bounds(plain, least, beyond)
        ceilings = self._ceilings(within)
        is_out = self._is_out | (bounds > _NEVER / 2.0)
        for lightest, most in zip(self._lightest[2:], ceilings.T, strict=True):
            is_out |= lightest > (most + _ROUNDING * np.abs(most))[self._whose, None]
        bounds = np.where(is_out, np.inf, bounds)
        offsets = fill_weight * self._own[0] + paid * self._own[1] + ends * self._own[2]
        weights = np.stack([np.full(count, fill_weight), paid, ends], axis=1)
        return tuple(
            PricedRank(
                rank=rank,
                cost=cost[columns],
                grid=grid[place],
                weights=weights[place],
                ceilings=ceilings[place],
                offset=float(offsets[place]),
                bounds=bounds[loads, : len(rank.outline.frame.thresholds)],
                priced=(plain[place], least[place], beyond[place]),
                kinds=self._kinds,
            )
            for place, (rank, columns, loads) in enumerate(
                zip(self.ranks, self._columns, self._loads, strict=True)
            )
        )

    def least(
        self, pace_weight: float, end_weight: float, *, fill_weight: float = 1.0
    ) -> list[Floats]:
        """Return the least cost of every load at the same weights on all ranks, by rank [loads]."""
        priced = self.priced(pace_weight, end_weight, Caps(), fill_weight=fill_weight)
        return [rank.least() for rank in priced]

    def _grid(self, cost: Floats) -> Floats:
        """Return 0 and the hull slopes of each rank's choices, [ranks, prices]."""
        slopes = []
        for rank, columns in zip(self.ranks, self._columns, strict=True):
            own, found = cost[columns], {0.0}
            for members, memory in rank.outline.corners:
                found.update(hull_slopes(own[members].tolist(), memory))
            slopes.append(sorted(found))
        grid = np.zeros((len(slopes), max(map(len, slopes), default=1)))
        for row, known in zip(grid, slopes, strict=True):
            row[: len(known)] = known
        return grid

    def _by_price(self, cost: Floats, grid: Floats) -> tuple[Floats, Floats, Floats]:
        """Return what layers cost at the least for each price and largest transient.

        That of a layer of a plain kind is [ranks, plain kinds, prices], of another one [ranks,
        kinds, prices, transients]; [ranks, prices, transients] is what a layer with the transient
        itself costs beyond, less what the room is worth.
        """
        each = grid[self._owner] * self._memory[:, None]
        each += cost[:, None]
        order, starts, cells = self._cells
        ranks, _, levels = self._shape
        own = np.full((ranks, len(self._kinds[1]), levels, grid.shape[1]), _NEVER)
        by_cell = own.reshape(-1, grid.shape[1])
        by_cell[cells] = np.minimum.reduceat(each[order], starts, axis=0)
        least = np.minimum.accumulate(own, axis=2)
        beyond = np.where(self._has_choice[..., None], own - least, _NEVER).min(axis=1)
        beyond[self._has_plain, 0] = np.minimum(beyond[self._has_plain, 0], 0.0)
        beyond -= grid[:, None, :] * self._rooms[:, :, None]
        plain = np.where(self._plain[..., None] >= 0, each[self._plain], _NEVER)
        return plain, np.ascontiguousarray(np.swapaxes(least, 2, 3)), np.swapaxes(beyond, 1, 2)

    def _bounds(self, plain: Floats, least: Floats, beyond: Floats) -> Floats:
        """Return the bounds of all loads by the largest transient, [loads, transients]."""
        levels = self._shape[2]
        bounds = np.empty((len(self._whose), levels))
        for place, loads in enumerate(self._loads):
            alone, others = self._held_apart[place]
            found = others @ least[place].reshape(others.shape[1], -1)
            found += beyond[place].ravel()
            found = found.reshape(len(found), -1, levels)
            if alone.shape[1]:
                found += (alone @ plain[place])[:, :, None]
            found.max(axis=1, out=bounds[loads])
        return bounds

    def _ceilings(self, within: Caps) -> Floats:
        """Return the most that layers have of pace, end and both, [ranks, 3]."""
        _, pace, end = self._own
        return np.stack(
            [within.pace - pace, within.end - end, within.both - self._repeats * pace - end], axis=1
        )

    @cached_property
    def _shape(self) -> tuple[int, int, int]:
        """Return how many ranks, kinds and transients there are."""
        kinds = max((rank.held.shape[1] for rank in self.ranks), default=0)
        levels = max((len(rank.outline.frame.thresholds) for rank in self.ranks), default=0)
        return len(self.ranks), kinds, levels

    @cached_property
    def _columns(self) -> list[slice]:
        return _spans([len(rank.columns.kind) for rank in self.ranks])

    @cached_property
    def _loads(self) -> list[slice]:
        return _spans([len(rank.held) for rank in self.ranks])

    @cached_property
    def _owner(self) -> Integers:
        """Return the rank of every choice, [columns]."""
        return np.repeat(np.arange(len(self.ranks)), [len(r.columns.kind) for r in self.ranks])

    @cached_property
    def _whose(self) -> Integers:
        """Return the rank of every load, [loads]."""
        return np.repeat(np.arange(len(self.ranks)), [len(rank.held) for rank in self.ranks])

    @cached_property
    def _held(self) -> list[Floats]:
        """Return the loads of each rank, of as many kinds each, [loads, kinds]."""
        kinds, found = self._shape[1], []
        for rank in self.ranks:
            held = np.zeros((len(rank.held), kinds))
            held[:, : rank.held.shape[1]] = rank.held
            found.append(held)
        return found

    @cached_property
    def _held_apart(self) -> list[tuple[Floats, Floats]]:
        """Return the loads of each rank, layers of plain kinds and others, [loads, kinds] each."""
        plain, others = self._kinds
        return [(held.take(plain, axis=1), held.take(others, axis=1)) for held in self._held]

    @cached_property
    def _repeats(self) -> Floats:
        return np.array([rank.repeats for rank in self.ranks])

    @cached_property
    def _own(self) -> Floats:
        """Return the fill, the pace and the end of ranks by themselves, [3, ranks]."""
        own = [(rank.own.fill, rank.own.pace, rank.own.end) for rank in self.ranks]
        return np.array(own).reshape(-1, 3).T

    @cached_property
    def _fill(self) -> Floats:
        return np.concatenate([rank.columns.fill for rank in self.ranks])

    @cached_property
    def _pace(self) -> Floats:
        return np.concatenate([rank.columns.pace for rank in self.ranks])

    @cached_property
    def _end(self) -> Floats:
        return np.concatenate([rank.columns.end for rank in self.ranks])

    @cached_property
    def _memory(self) -> Floats:
        return np.concatenate([rank.columns.memory for rank in self.ranks])

    @cached_property
    def _kinds(self) -> tuple[Integers, Integers]:
        """Return the plain kinds, and the others, of which there is one at least."""
        is_plain = np.ones(self._shape[1], dtype=bool)
        for rank in self.ranks:
            frame = rank.outline.frame
            kind, level = np.divmod(frame.cells, len(frame.thresholds))
            sizes = np.bincount(rank.columns.kind, minlength=len(is_plain))
            is_plain &= sizes <= 1
            is_plain[kind[level > 0]] = False
        if is_plain.all():
            is_plain[:1] = False  # one at least has the largest transient
        return np.flatnonzero(is_plain), np.flatnonzero(~is_plain)

    @cached_property
    def _plain(self) -> Integers:
        """Return the choice of every plain kind, [ranks, plain kinds], -1 where there is none."""
        choices = np.full((self._shape[0], self._shape[1]), -1)
        kinds = np.concatenate([rank.columns.kind for rank in self.ranks])
        choices[self._owner, kinds] = np.arange(len(kinds))
        return choices[:, self._kinds[0]]

    @cached_property
    def _has_plain(self) -> Booleans:
        """Return which ranks have a choice of a plain kind, [ranks]."""
        return np.asarray((self._plain >= 0).any(axis=1))

    @cached_property
    def _cells(self) -> tuple[Integers, Integers, Integers]:
        """Return choices by rank, kind and transient, where each cell begins, and the cells.

        Those of plain kinds are left out.
        """
        others, levels = self._kinds[1], self._shape[2]
        number = np.full(self._shape[1], -1)
        number[others] = np.arange(len(others))
        orders, starts, cells, total = [], [], [], 0
        for place, (rank, columns) in enumerate(zip(self.ranks, self._columns, strict=True)):
            frame = rank.outline.frame
            kind, level = np.divmod(frame.cells, len(frame.thresholds))
            sizes = np.diff(frame.starts, append=len(frame.order))
            kept = number[kind] >= 0
            own = frame.order[kept.repeat(sizes)]
            orders.append(own + columns.start)
            starts.append(total + np.cumsum(sizes[kept]) - sizes[kept])
            cells.append((place * len(others) + number[kind[kept]]) * levels + level[kept])
            total += len(own)
        return np.concatenate(orders), np.concatenate(starts), np.concatenate(cells)

    @cached_property
    def _has_choice(self) -> Booleans:
        """Return where there is a choice with the transient itself, [ranks, kinds, transients].

        The kinds are those that are not plain.
        """
        found = np.zeros((self._shape[0], len(self._kinds[1]), self._shape[2]), dtype=bool)
        found.reshape(-1)[self._cells[2]] = True
        return found

    @cached_property
    def _rooms(self) -> Floats:
        """Return the bytes beside each transient, [ranks, transients]."""
        rooms = np.zeros((self._shape[0], self._shape[2]))
        for row, rank in zip(rooms, self.ranks, strict=True):
            thresholds = rank.outline.frame.thresholds
            row[: len(thresholds)] = rank.capacity - thresholds
        return rooms

    @cached_property
    def _lightest(self) -> list[Floats]:
        """Return the least bytes, host bytes, pace, end and both, each [loads, transients]."""
        found = [np.zeros((len(self._whose), self._shape[2])) for _ in range(5)]
        for rank, held, loads in zip(self.ranks, self._held, self._loads, strict=True):
            for values, least in zip(found, rank.outline.least, strict=True):
                values[loads, : least.shape[1]] = held[:, : len(least)] @ least
        return found

    @cached_property
    def _is_out(self) -> Booleans:
        """Return what does not fit, on the device or the host, [loads, transients]."""
        host = np.array([rank.host for rank in self.ranks])
        held, on_host = self._lightest[:2]
        most = (host + _ROUNDING * np.abs(host))[self._whose, None]
        return np.asarray((held > self._rooms[self._whose]) | (on_host > most))


def _spans(sizes: Sequence[int]) -> list[slice]:
    ends = np.cumsum([0, *sizes]).tolist()
    return [slice(start, end) for start, end in pairwise(ends)]
