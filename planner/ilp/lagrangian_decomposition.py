"""Lagrangian decomposition: a bound of one configuration from its ranks, each solved by itself.

A plan's step is S + V + U with V >= rho t_r and U >= u_r of every rank. At weights y, z >= 0 of
these rows (Lagrange multipliers, which need not sum to 1)

    step >= min over loads of sum_r C_r(load)  +  min over (V, U) of (1 - sum y) V + (1 - sum z) U,

where C_r is the least of sum (phi + rho y_r tau + z_r u) n of rank r (`PricedRank`), a knapsack of
its own within the rank's memory, and (V, U) lies within the limits that are known of every plan
below the cutoff (`Box`); the second minimum is at a corner of these. The first keeps what is hard
about ranks, whole layers and the largest transient, and shares out the layers exactly by dynamic
programming (`planner.ilp.cut_point_graph`): it is no less than the relaxed program's.
Source: Geoffrion 1974, Lagrangean relaxation for integer programming, doi:10.1007/BFb0120690.

All ranks' loads are priced at once (`Roster`), by the bounds of `planner.ilp.stage_knapsack`: by
the largest transient, at prices of memory that are slopes of the hulls of a rank's own choices.
Choices of all ranks follow one another; ranks with fewer transients or prices than others have
places without any choice behind theirs.

`WeightSearch` looks for the weights with the best bound by cutting planes. The bound is a concave
function of the weights. What the ranks hold where it was looked at is a plane above all of it, and
so is every corner of the limits of V and U. The largest value below all planes is an upper bound of
the bound, and where it lies the next look is worth most (Kelley 1960, doi:10.1137/0108053); half
the way there from the best weights known keeps the looks from jumping about. The planes' program
(`Master`) grows row by row and is solved again after each by HiGHS itself: PuLP hands a program
over as a whole, which takes longer than to solve one of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.cut_point_graph import RankMoves, best_loads, held_edges, sums_through, with_edges
from planner.ilp.instance import Instance, undominated
from planner.ilp.problem import Effort
from planner.ilp.settings import (
    FINE_ROUNDING,
    NEVER,
    ROUNDING,
    TINY,
    UNITS_PER_CELL,
    UNITS_PER_TURN,
    WEIGHT_GAP_LEAST,
    WEIGHT_MOST,
)
from planner.ilp.stage_knapsack import (
    Budget,
    Frame,
    Knapsack,
    Packing,
    TransientBounds,
    hull_slopes,
    least_cost_within,
)
from planner.ilp.stage_loads import Load
from planner.ilp.stage_patterns import Columns, rank_columns

if TYPE_CHECKING:
    import highspy


class Master:
    """Maximise gains x with 0 <= x <= most and rows a x <= b; arrays are [columns]."""

    def __init__(self, gains: Floats, *, least: Floats, most: Floats) -> None:
        """Start without any rows; infinite limits are none."""
        self._columns = np.arange(len(gains), dtype=np.int32)
        self._highs = _quiet()
        self._highs.addVars(len(gains), least, most)
        self._highs.changeColsCost(len(gains), self._columns, -gains)

    def require(self, row: Floats, most: float) -> None:
        """Add a row."""
        self._highs.addRow(-np.inf, most, len(row), self._columns, row)

    def best(self) -> tuple[float, Floats] | None:
        """Return the largest value and the columns there, None where there is none."""
        import highspy  # noqa: PLC0415

        self._highs.run()
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        columns = np.array(self._highs.getSolution().col_value)
        return -float(self._highs.getInfo().objective_function_value), columns


def _quiet() -> highspy.Highs:
    import highspy  # noqa: PLC0415

    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    for name, value in (("output_flag", False), ("threads", 1), ("random_seed", 0)):
        highs.setOptionValue(name, value)
    return highs


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The columns of a rank in the order of their transients, and what limits are about.

    `limited` [limits, columns] are pace, end and both, which caps limit besides memory; `least` are
    the least bytes, host bytes and these of a layer, each [kinds, thresholds], 0 where a kind has
    no such choice. `corners` are by kind the columns that may be corners of its hull at any weights
    of fill, pace and end, with their bytes.
    """

    frame: Frame
    limited: Floats
    least: tuple[Floats, ...]
    corners: tuple[tuple[Integers, list[float]], ...]

    @staticmethod
    def of(columns: Columns, repeats: float) -> Outline:
        """Return the outline of a rank's columns."""
        frame = Frame.of(columns.kind, columns.transient)
        limited = np.stack([columns.pace, columns.end, repeats * columns.pace + columns.end])
        least = [frame.least(each) for each in (columns.memory, columns.host, *limited)]
        return Outline(
            frame=frame,
            limited=limited,
            least=tuple(np.where(np.isfinite(each), each, 0.0) for each in least),
            corners=tuple(_corners(columns, own) for own in frame.members),
        )


def _corners(columns: Columns, own: Integers) -> tuple[Integers, list[float]]:
    """Return those columns of a kind that no other equals or beats in cost and memory."""
    measures = np.stack([columns.fill, columns.pace, columns.end, columns.memory])
    kept = own[undominated(measures[:, own])]
    return kept, columns.memory[kept].tolist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a rank adds to a step: fill, pace and end, in seconds."""

    fill: float
    pace: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What no rank may exceed: t_r, u_r and rho t_r + u_r, in seconds."""

    pace: float = float("inf")
    end: float = float("inf")
    both: float = float("inf")


@dataclass(frozen=True, kw_only=True)
class Rank:
    """The choices of one rank that a plan below the cutoff may have, and its loads.

    `places` [columns] are those of the choices among all of the instance's side by side, with the
    edges behind them; `held` [loads, kinds] has the pinned layers and the edges too; `own` is what
    the rank costs by itself.
    """

    columns: Columns
    places: Integers
    held: Integers
    own: Parts
    repeats: float
    capacity: float
    host: float
    known_outline: Outline | None = field(default=None, compare=False)

    @cached_property
    def outline(self) -> Outline:
        """Return what its choices have in common, which ranks with other loads share."""
        return self.known_outline or Outline.of(self.columns, self.repeats)

    def with_loads(self, places: Integers) -> Rank:
        """Return the rank with some of its loads alone."""
        return replace(self, held=self.held[places], known_outline=self.outline)

    def parts(self, counts: Floats) -> Parts:
        """Return what layers by column add up to, with the rank's own."""
        columns, own = self.columns, self.own
        return Parts(
            fill=own.fill + float(counts @ columns.fill),
            pace=own.pace + float(counts @ columns.pace),
            end=own.end + float(counts @ columns.end),
        )


def rank_of(
    instance: Instance, rank: int, *, loads: Sequence[Load], most: Sequence[Integers]
) -> Rank:
    """Return a rank with its loads of the free kinds, with edges where cuts differ by place.

    `most` is by kind [stages, choices].
    """
    every = with_edges(instance, rank, rank_columns(instance, rank, most=most))
    free = list(instance.free_kinds)
    places = np.flatnonzero(every.most > 0)
    pinned = np.array([int(kind.pinned_stage == rank) for kind in instance.kinds])
    held = np.tile(pinned, (len(loads), 1))
    held[:, free] = [load[: len(free)] for load in loads]
    edges = np.array(held_edges(instance, rank, loads), dtype=np.int64)
    return Rank(
        columns=every.taken(places),
        places=places,
        held=np.concatenate([held, edges], axis=1),
        own=Parts(
            fill=float(instance.stage_fill[rank]),
            pace=float(instance.stage_pace[rank]),
            end=float(instance.stage_end[rank]),
        ),
        repeats=instance.repeat_count,
        capacity=float(instance.capacity_bytes[rank] - instance.stage_bytes[rank]),
        host=float(instance.host_capacity_bytes[rank]),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class PricedRank:
    """Costs of choices [columns], and bounds of loads [loads, thresholds] without the offset.

    `ceilings` are the most of pace, end and rho t + u. At each price of the `grid` [prices],
    `priced` are the least that a layer of each kind costs [kinds, prices, thresholds], and what one
    with the transient itself costs more, less the worth of the room [prices, thresholds]; there may
    be further thresholds behind the rank's own.
    """

    rank: Rank
    cost: Floats
    grid: Floats
    ceilings: Floats
    offset: float
    bounds: Floats
    priced: tuple[Floats, Floats]

    @cached_property
    def knapsack(self) -> Knapsack:
        """Return the choices with their costs, and the rank's limits."""
        rank, columns = self.rank, self.rank.columns
        return Knapsack(
            kind=columns.kind,
            cost=self.cost,
            memory=columns.memory,
            transient=columns.transient,
            host=columns.host,
            capacity=rank.capacity,
            host_capacity=rank.host,
            further=rank.outline.limited,
            ceilings=self.ceilings,
            known_frame=rank.outline.frame,
        )

    def least(self) -> Floats:
        """Return a lower bound of every load's cost, [loads]."""
        least: Floats = self.bounds.min(axis=1) + self.offset
        return least

    def keeps(self, counts: Integers) -> Booleans:
        """Return whether layers [..., columns] are at most the ceilings, [...]."""
        return np.asarray((counts @ self.rank.outline.limited.T <= self.ceilings).all(axis=-1))

    def packing(self, load: int, *, upper: float, budget: Budget) -> Packing:
        """Return the cheapest packing of a load where it costs less than `upper`."""
        bounds = self.transient_bounds(load)
        found = least_cost_within(bounds, upper=upper - self.offset, budget=budget)
        return replace(found, lower=found.lower + self.offset, cost=found.cost + self.offset)

    def transient_bounds(self, load: int) -> TransientBounds:
        """Return the bounds of a load by its largest transient, without the offset."""
        return TransientBounds(
            own=self.knapsack,
            held=self.rank.held[load],
            values=self.bounds[load],
            price_of=lambda place: self._price(load, place),
        )

    def _price(self, load: int, place: int) -> float:
        """Return the price of memory that bounds a load best under a largest transient."""
        held, (least, beyond) = self.rank.held[load], self.priced
        bounds = held @ least[: len(held), :, place] + beyond[:, place]
        return float(self.grid[bounds.argmax()])

    def divided(self, load: int) -> Parts:
        """Return the parts of the packing that sets the bound, where layers may be divided."""
        place = int(self.bounds[load].argmin())
        price = self._price(load, place)
        threshold = float(self.rank.outline.frame.thresholds[place])
        columns = self.rank.columns
        reduced = self.cost + price * columns.memory
        reduced = np.where(columns.transient <= threshold, reduced, np.inf)
        heavy, light = np.zeros(len(reduced)), np.zeros(len(reduced))
        for kind in np.flatnonzero(self.rank.held[load]).tolist():
            own = np.flatnonzero(columns.kind == kind)
            least = float(reduced[own].min())
            tied = own[reduced[own] <= least + FINE_ROUNDING * max(abs(least), 1.0)]
            number = float(self.rank.held[load, kind])
            heavy[tied[columns.memory[tied].argmax()]] = number
            light[tied[columns.memory[tied].argmin()]] = number
        over = float(heavy @ columns.memory) - (self.rank.capacity - threshold)
        saved = float((heavy - light) @ columns.memory)
        share = min(max(over / saved, 0.0), 1.0) if saved > 0.0 else 0.0
        return self.rank.parts((1.0 - share) * heavy + share * light)


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
        fill, pace, end, _ = self._numbers
        cost = fill_weight * fill
        cost += paid[self._owner] * pace
        cost += ends[self._owner] * end
        grid = self._grid(cost)
        least, beyond = self._by_price(cost, grid)
        bounds = self._bounds(least, beyond)
        ceilings = self._ceilings(within)
        is_out = self._is_out | (bounds > NEVER / 2.0)
        for lightest, most in zip(self._lightest[2:], ceilings.T, strict=True):
            is_out |= lightest > (most + FINE_ROUNDING * np.abs(most))[self._whose, None]
        bounds = np.where(is_out, np.inf, bounds)
        offsets = fill_weight * self._own[0] + paid * self._own[1] + ends * self._own[2]
        return tuple(
            PricedRank(
                rank=rank,
                cost=cost[columns],
                grid=grid[place],
                ceilings=ceilings[place],
                offset=float(offsets[place]),
                bounds=bounds[loads, : len(rank.outline.frame.thresholds)],
                priced=(least[place], beyond[place]),
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

        That of a layer is [ranks, kinds, prices, transients]; [ranks, prices, transients] is what a
        layer with the transient itself costs beyond, less what the room is worth.
        """
        each = grid[self._owner] * self._numbers[3][:, None]
        each += cost[:, None]
        order, starts, cells = self._cells
        ranks, kinds, levels = self._shape
        own = np.full((ranks, kinds, levels, grid.shape[1]), NEVER)
        by_cell = own.reshape(-1, grid.shape[1])
        by_cell[cells] = np.minimum.reduceat(each[order], starts, axis=0)
        least = np.minimum.accumulate(own, axis=2)
        beyond = np.where(self._has_choice[..., None], own - least, NEVER).min(axis=1)
        beyond -= grid[:, None, :] * self._rooms[:, :, None]
        return np.ascontiguousarray(np.swapaxes(least, 2, 3)), np.swapaxes(beyond, 1, 2)

    def _bounds(self, least: Floats, beyond: Floats) -> Floats:
        """Return the bounds of all loads by the largest transient, [loads, transients]."""
        levels = self._shape[2]
        bounds = np.empty((len(self._whose), levels))
        for place, loads in enumerate(self._loads):
            held = self._held[place]
            found = held @ least[place].reshape(held.shape[1], -1)
            found += beyond[place].ravel()
            found.reshape(len(found), -1, levels).max(axis=1, out=bounds[loads])
        return bounds

    def _ceilings(self, within: Caps) -> Floats:
        """Return the most that layers have of what is limited besides memory, [ranks, limits]."""
        _, pace, end = self._own
        most = [within.pace - pace, within.end - end, within.both - self._repeats * pace - end]
        return np.stack(most, axis=1)

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
    def _numbers(self) -> Floats:
        """Return fill, pace, end and bytes of every choice, [4, columns]."""
        names = ("fill", "pace", "end", "memory")
        each = [[getattr(rank.columns, name) for name in names] for rank in self.ranks]
        return np.concatenate(each, axis=1)

    @cached_property
    def _cells(self) -> tuple[Integers, Integers, Integers]:
        """Return choices by rank, kind and transient, where each cell begins, and the cells."""
        _, kinds, levels = self._shape
        orders, starts, cells, total = [], [], [], 0
        for place, (rank, columns) in enumerate(zip(self.ranks, self._columns, strict=True)):
            frame = rank.outline.frame
            kind, level = np.divmod(frame.cells, len(frame.thresholds))
            orders.append(frame.order + columns.start)
            starts.append(frame.starts + total)
            cells.append((place * kinds + kind) * levels + level)
            total += len(frame.order)
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
        """Return the least bytes, host bytes and what else is limited, [loads, transients] each."""
        count = max((len(rank.outline.least) for rank in self.ranks), default=0)
        found = [np.zeros((len(self._whose), self._shape[2])) for _ in range(count)]
        for rank, held, loads in zip(self.ranks, self._held, self._loads, strict=True):
            for values, least in zip(found, rank.outline.least, strict=True):
                values[loads, : least.shape[1]] = held[:, : len(least)] @ least
        return found

    @cached_property
    def _is_out(self) -> Booleans:
        """Return what does not fit, on the device or the host, [loads, transients]."""
        host = np.array([rank.host for rank in self.ranks])
        held, on_host = self._lightest[:2]
        most = (host + FINE_ROUNDING * np.abs(host))[self._whose, None]
        return np.asarray((held > self._rooms[self._whose]) | (on_host > most))


def _spans(sizes: Sequence[int]) -> list[slice]:
    ends = np.cumsum([0, *sizes]).tolist()
    return [slice(start, end) for start, end in pairwise(ends)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """y and z by rank, each [stages]."""

    pace: Floats
    end: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """What V and U of a plan lie between; `least_both` and `most_both` are of their sum."""

    least_pace: float
    most_pace: float
    least_end: float
    most_end: float
    least_both: float
    most_both: float

    def least(self, pace_price: float, end_price: float) -> tuple[float, float]:
        """Return the V and U with the least pace_price V + end_price U."""
        return min(self.corners(), key=lambda at: pace_price * at[0] + end_price * at[1])

    def corners(self) -> list[tuple[float, float]]:
        """Return the corners of what V and U lie in."""
        corners = [
            corner
            for pace in (self.least_pace, self.most_pace)
            for corner in (
                (pace, max(self.least_end, self.least_both - pace)),
                (pace, min(self.most_end, self.most_both - pace)),
            )
        ]
        corners += [
            corner
            for end in (self.least_end, self.most_end)
            for corner in (
                (max(self.least_pace, self.least_both - end), end),
                (min(self.most_pace, self.most_both - end), end),
            )
        ]
        return [corner for corner in corners if self._holds(*corner)]

    def caps(self, repeat_count: float) -> Caps:
        """Return what no rank may exceed."""
        pace = self.most_pace / repeat_count if repeat_count > 0.0 else float("inf")
        return Caps(pace=pace, end=self.most_end, both=self.most_both)

    def halves(self, *, by_end: bool) -> tuple[Box, Box]:
        """Return the parts of the box on both sides of the middle of U, or of V."""
        if by_end:
            middle = 0.5 * (self.least_end + self.most_end)
            return replace(self, most_end=middle), replace(self, least_end=middle)
        middle = 0.5 * (self.least_pace + self.most_pace)
        return replace(self, most_pace=middle), replace(self, least_pace=middle)

    def least_sum(self) -> float:
        """Return the least V + U."""
        return max(self.least_both, self.least_pace + self.least_end)

    def is_empty(self) -> bool:
        """Return whether nothing lies within the limits."""
        return (
            self.least_pace > self.most_pace
            or self.least_end > self.most_end
            or max(self.least_both, self.least_pace + self.least_end)
            > min(self.most_both, self.most_pace + self.most_end)
        )

    def _holds(self, pace: float, end: float) -> bool:
        room = ROUNDING * max(abs(self.most_both), TINY)
        return (
            self.least_pace - room <= pace <= self.most_pace + room
            and self.least_end - room <= end <= self.most_end + room
            and self.least_both - room <= pace + end <= self.most_both + room
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """The bound at some weights: of any plan, and of the plans with a load of a rank.

    `tables` and `through` are by rank [loads]; `beyond` is what (V, U) add.
    """

    weights: Weights
    ranks: tuple[PricedRank, ...]
    tables: tuple[Floats, ...]
    through: tuple[Floats, ...]
    beyond: float
    lower: float

    @property
    def units(self) -> float:
        """Return the work of the bound, as `planner.ilp.problem` counts it."""
        cells = sum(rank.bounds.size * len(rank.grid) for rank in self.ranks)
        return UNITS_PER_TURN * len(self.ranks) + UNITS_PER_CELL * cells


@dataclass(frozen=True, kw_only=True, eq=False)
class Decomposition:
    """The ranks of an instance, and how they share the layers."""

    instance: Instance
    ranks: tuple[Rank, ...]
    rank_moves: tuple[RankMoves, ...]

    @cached_property
    def roster(self) -> Roster:
        """Return the ranks side by side."""
        return Roster(ranks=self.ranks)

    def bounded(self, weights: Weights, box: Box, allowed: Sequence[Booleans]) -> Bounded:
        """Return the bound at the weights over plans with `allowed` loads, by rank [loads]."""
        caps = box.caps(self.instance.repeat_count)
        ranks = self.roster.priced(weights.pace, weights.end, caps)
        tables = tuple(
            np.where(mask, rank.least(), np.inf) for rank, mask in zip(ranks, allowed, strict=True)
        )
        prices = 1.0 - float(weights.pace.sum()), 1.0 - float(weights.end.sum())
        pace, end = box.least(*prices)
        empty = Bounded(
            weights=weights,
            ranks=ranks,
            tables=tables,
            through=(),
            beyond=prices[0] * pace + prices[1] * end,
            lower=0.0,
        )
        return self.summed(empty, tables)

    def summed(self, bounded: Bounded, tables: Sequence[Floats]) -> Bounded:
        """Return the bound with other lower bounds of the ranks' loads."""
        least, through = sums_through(self.rank_moves, tables)
        return replace(
            bounded,
            tables=tuple(tables),
            through=tuple(through),
            lower=least + bounded.beyond,
        )

    def best(self, bounded: Bounded) -> tuple[int, ...]:
        """Return the place of every rank's load in the sharing that sets the bound."""
        return best_loads(self.rank_moves, bounded.tables)

    def divided(self, bounded: Bounded) -> list[Parts]:
        """Return the parts of the ranks that set the bound, where layers may be divided."""
        path = self.best(bounded)
        return [rank.divided(load) for rank, load in zip(bounded.ranks, path, strict=True)]

    def moved(
        self, weights: Weights, parts: Sequence[Parts], box: Box, *, reach: float
    ) -> Weights | None:
        """Return the weights a step up the slope that `parts` make, None at the top."""
        prices = 1.0 - float(weights.pace.sum()), 1.0 - float(weights.end.sum())
        pace, end = box.least(*prices)
        up_pace = self.instance.repeat_count * np.array([one.pace for one in parts]) - pace
        up_end = np.array([one.end for one in parts]) - end
        up_pace = np.where((weights.pace <= 0.0) & (up_pace < 0.0), 0.0, up_pace)
        up_end = np.where((weights.end <= 0.0) & (up_end < 0.0), 0.0, up_end)
        square = float(up_pace @ up_pace + up_end @ up_end)
        if square <= 0.0:
            return None
        return Weights(
            pace=np.maximum(weights.pace + reach / square * up_pace, 0.0),
            end=np.maximum(weights.end + reach / square * up_end, 0.0),
        )


def step_seconds_of(parts: Sequence[Parts], repeat_count: float) -> float:
    """Return S + rho T + U of ranks."""
    return (
        sum(one.fill for one in parts)
        + repeat_count * max(one.pace for one in parts)
        + max(one.end for one in parts)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSearch:
    """Looks for the weights with the best bound over plans with `allowed` loads in a box."""

    decomposition: Decomposition
    box: Box
    allowed: tuple[Booleans, ...]

    def best(self, bounded: Bounded, *, target: float, rounds: int, effort: Effort) -> Bounded:
        """Return the best bound found in some rounds, or as soon as it reaches `target`.

        It ends too where the planes leave little of the way to the target.
        """
        decomposition, box, allowed = self.decomposition, self.box, self.allowed
        planes = _Planes(decomposition, box)
        best = latest = bounded
        for _ in range(rounds):
            left = target - best.lower
            if not 0.0 < left < float("inf") or effort.is_over:
                break
            planes.add(latest, decomposition.divided(latest))
            top = planes.top()
            if top is None or top[0] - best.lower <= WEIGHT_GAP_LEAST * left:
                break
            weights = _between(best.weights, top[1])
            latest = decomposition.bounded(weights, box, allowed)
            effort.spend(latest.units)
            best = latest if latest.lower > best.lower else best
        return best


def _between(one: Weights, other: Weights) -> Weights:
    """Return the weights in the middle of two."""
    return Weights(pace=0.5 * (one.pace + other.pace), end=0.5 * (one.end + other.end))


class _Planes:
    """The planes known so far: columns are y, z, what ranks add, and what V and U add."""

    def __init__(self, decomposition: Decomposition, box: Box) -> None:
        self._repeats = decomposition.instance.repeat_count
        self._ranks = len(decomposition.ranks)
        weights = np.zeros(2 * self._ranks)
        free = np.full(2, np.inf)
        self._master = Master(
            np.concatenate([weights, np.ones(2)]),
            least=np.concatenate([weights, -free]),
            most=np.concatenate([weights + WEIGHT_MOST, free]),
        )
        for pace, end in box.corners():
            row = np.repeat([pace, end, 0.0, 1.0], [self._ranks, self._ranks, 1, 1])
            self._master.require(row, pace + end)

    def add(self, bounded: Bounded, parts: Sequence[Parts]) -> None:
        """Add the plane of what ranks hold, through the bound where it was looked at."""
        paces = self._repeats * np.array([one.pace for one in parts])
        slope = np.concatenate([paces, [one.end for one in parts]])
        at = np.concatenate([bounded.weights.pace, bounded.weights.end])
        most = bounded.lower - bounded.beyond - float(slope @ at)
        self._master.require(np.concatenate([-slope, [1.0, 0.0]]), most)

    def top(self) -> tuple[float, Weights] | None:
        """Return the largest value below all planes, and the weights there."""
        found = self._master.best()
        if found is None:
            return None
        value, columns = found
        ends = columns[self._ranks : 2 * self._ranks]
        return value, Weights(
            pace=np.maximum(columns[: self._ranks], 0.0), end=np.maximum(ends, 0.0)
        )
