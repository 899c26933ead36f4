"""Roster: the ranks of one configuration side by side, all of whose loads are priced at once.

The bounds are those of `planner.ilp.knapsack`: by the largest transient, at prices of memory that
are slopes of the hulls of a rank's own choices. Choices of all ranks follow one another; ranks with
fewer transients or prices than others have places without any choice behind theirs.
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
        least, beyond = self._by_price(cost, grid)
        bounds = self._bounds(least, beyond)
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
                least_priced=least[place],
                beyond=beyond[place],
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

    def _by_price(self, cost: Floats, grid: Floats) -> tuple[Floats, Floats]:
        """Return what layers cost at the least for each price and largest transient.

        That of a layer of each kind is [ranks, kinds, prices, transients]; [ranks, prices,
        transients] is what a layer with the transient itself costs beyond, less what the room is
        worth.
        """
        each = grid[self._owner] * self._memory[:, None]
        each += cost[:, None]
        order, starts, cells = self._cells
        own = np.full((*self._shape, grid.shape[1]), _NEVER)
        by_cell = own.reshape(-1, grid.shape[1])
        by_cell[cells] = np.minimum.reduceat(each[order], starts, axis=0)
        least = np.minimum.accumulate(own, axis=2)
        beyond = np.where(self._has_choice[..., None], own - least, _NEVER).min(axis=1)
        beyond -= grid[:, None, :] * self._rooms[:, :, None]
        return np.ascontiguousarray(np.swapaxes(least, 2, 3)), np.swapaxes(beyond, 1, 2)

    def _bounds(self, least: Floats, beyond: Floats) -> Floats:
        """Return the bounds of all loads by the largest transient, [loads, transients]."""
        _, kinds, levels = self._shape
        bounds = np.empty((len(self._whose), levels))
        for place, (held, loads) in enumerate(zip(self._held, self._loads, strict=True)):
            found = held @ least[place].reshape(kinds, -1)
            found += beyond[place].ravel()
            found.reshape(len(found), least.shape[2], levels).max(axis=1, out=bounds[loads])
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
    def _cells(self) -> tuple[Integers, Integers, Integers]:
        """Return choices by rank, kind and transient, where each cell begins, and the cells."""
        _, kinds, levels = self._shape
        orders, starts, cells = [], [], []
        for place, (rank, columns) in enumerate(zip(self.ranks, self._columns, strict=True)):
            frame = rank.outline.frame
            kind, level = np.divmod(frame.cells, len(frame.thresholds))
            orders.append(frame.order + columns.start)
            starts.append(frame.starts + columns.start)
            cells.append((place * kinds + kind) * levels + level)
        return np.concatenate(orders), np.concatenate(starts), np.concatenate(cells)

    @cached_property
    def _has_choice(self) -> Booleans:
        """Return where there is a choice with the transient itself, [ranks, kinds, transients]."""
        found = np.zeros(self._shape, dtype=bool)
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
