"""Stage patterns: all ways to fill one rank that a plan within a gap may have.

Weak duality (`planner.ilp.lagrangian_decomposition`) gives each layer under each choice a reduced
cost d >= 0 such that a plan's step is at least a bound plus the sum of its reduced costs, plus what
memory it leaves free at the price of memory. A rank's pattern whose own sum exceeds what the cutoff
leaves is in no plan below it, and few are left once the bound is close: they are enumerated. The
technique is known from vehicle routing (Baldacci, Christofides and Mingozzi 2008,
doi:10.1007/s10107-007-0178-5).

The ways to hold one load of a rank are found by letting choices take over layers in turn
(`LayerSets`). All layers begin under the base of their kind, a choice whose reduced cost is least.
With the load known, so is what memory every set of layers comes to, and what it costs to bring that
to the rank's room. Left out is
L1. a set whose reduced cost, with what its memory costs at the least, exceeds the gap;
L2. one that exceeds a limit even if all layers that are left take the least of it;
L3. one that another with as many layers or fewer of each kind that is not done with equals or beats
    in what is compared: whatever completes the one completes the other.
Patterns are compared by fill, pace, end and memory, packings (`planner.ilp.stage_knapsack`) by cost
and memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.instance import Instance
from planner.ilp.problem import Effort, TooManyError
from planner.ilp.settings import (
    CELLS_AT_ONCE,
    FINE_ROUNDING,
    NEVER,
    PATTERN_UNITS_PER_PAIR,
    PATTERN_UNITS_PER_SET,
    ROUNDING,
    SETS_FEW,
    UNITS_PER_TURN,
)

_TIMES = 3  # measures, of which the first are sums of seconds


def unbeaten_of(measures: Floats, *, check: Callable[[], None] | None = None) -> Integers:
    """Return the columns of `measures`, in lexical order, that no earlier one equals or beats.

    Whatever beats a column comes before it, so that a block is compared with those kept so far;
    one that is not kept beats nothing. The first three measures are equal if they differ by
    rounding. `check` is called now and then, and may raise.
    """
    scale = np.abs(measures).max(axis=1, initial=0.0)
    scale[_TIMES:] = 0.0
    eased = measures + FINE_ROUNDING * scale[:, None]
    kept = np.zeros(0, dtype=np.int64)
    width = max(CELLS_AT_ONCE // max(measures.shape[1], 1), 1)
    for start in range(0, measures.shape[1], width):
        if check is not None:
            check()
        block = np.arange(start, min(start + width, measures.shape[1]))
        block = block[~_beat(measures, kept, eased, block).any(axis=0)]
        kept = np.concatenate([kept, block[_first_of(_beat(measures, block, eased, block))]])
    return kept


def _beat(measures: Floats, some: Integers, eased: Floats, others: Integers) -> Booleans:
    """Return which of `some` columns are no more than which others, but in the first measure.

    Shape [some, others]; earlier ones are no more in the first.
    """
    found = np.ones((len(some), len(others)), dtype=bool)
    for own, most in zip(measures[1:, some], eased[1:, others], strict=True):
        found &= own[:, None] <= most
    return found


def _first_of(beat: Booleans) -> Integers:
    """Return the columns that no earlier one of those returned beats, `beat` [columns, columns]."""
    beaten_by = np.triu(beat, 1)
    kept: Booleans = np.logical_not(beaten_by.any(axis=0))
    for column in np.flatnonzero(~kept & ~beaten_by[kept].any(axis=0)).tolist():
        kept[column] = not beaten_by[kept, column].any()
    return np.flatnonzero(kept)


class _Arrays:
    """A dataclass of arrays whose first axes are the same."""

    def taken(self, places: Integers) -> Self:
        """Return some of what there is."""
        return type(self)(**{name: values[places] for name, values in self._named().items()})

    def followed_by(self, *others: Self) -> Self:
        """Return this with others behind."""
        every = [part._named() for part in (self, *others)]  # noqa: SLF001
        return type(self)(**{name: np.concatenate([o[name] for o in every]) for name in every[0]})

    def _named(self) -> dict[str, Any]:
        return {own.name: getattr(self, own.name) for own in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns(_Arrays):
    """All choices of all kinds on one rank side by side, each [columns]; `kind` says whose.

    `most` are the layers that a choice may have.
    """

    kind: Integers
    most: Integers
    pace: Floats
    fill: Floats
    end: Floats
    memory: Floats
    transient: Floats
    host: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Patterns(_Arrays):
    """Patterns of one rank, each [patterns]; `load` is their place among the rank's loads.

    `counts` [patterns, columns] are the layers.
    """

    load: Integers
    pace: Floats
    fill: Floats
    end: Floats
    counts: Integers


def rank_columns(instance: Instance, rank: int, *, most: Sequence[Integers]) -> Columns:
    """Return the choices of a rank; `most` is by kind [stages, choices]."""
    kinds = instance.kinds
    names = ("pace", "fill", "end", "memory", "transient", "host")
    return Columns(
        kind=np.repeat(np.arange(len(kinds)), [len(kind.choice) for kind in kinds]),
        most=np.concatenate([own[rank] for own in most]),
        **{n: np.concatenate([getattr(kind, n)[rank] for kind in kinds]) for n in names},
    )


def undominated_columns(measures: Floats) -> Integers:
    """Return the columns of `measures` that no other equals or beats in all of them."""
    order = np.lexsort(measures[::-1])
    return np.asarray(order[unbeaten_of(measures[:, order])])


_REDUCED, _MEMORY, _COMPARED = 0, 1, 2
"""The numbers of a set of layers; behind those compared are limits, and layers by kind."""


@dataclass(frozen=True, kw_only=True)
class Enumeration:
    """How a rank may hold `held` [kinds] layers, by choices that are each [columns].

    `most` are the layers that a choice may have. Sets are compared in memory and the `compared`
    [numbers, columns], one of which alone is a cost. Of what they have `taken` [limits, columns] of
    the `limits` [limits] the first is a host's. A byte of the `room` left free costs `price`.
    Layers are of the `bases` by kind unless they are of others. A `light` choice costs nothing
    beyond its base and saves memory: how many take it is left open. Every set has a layer of a
    `needed` choice, if there are any and none is a base or light.
    """

    kind: Integers
    reduced: Floats
    most: Integers
    memory: Floats
    compared: Floats
    taken: Floats
    limits: Floats
    held: Integers
    room: float
    price: float
    bases: dict[int, int]
    needed: Integers
    light: int | None = None


@dataclass(slots=True)
class LayerSets:
    """Sets of layers under others than their bases, whose reduced cost is within a `gap`.

    A row [numbers] is of a set with all other layers under their bases, and grows by the same with
    every layer of a choice, so that layers are added to all sets at once. `others` are the choices
    that the gap pays, the cheapest first; [others, numbers] are what a layer of each has `added`,
    and [sets, others] the `layers` of each.
    `less` and `more` [others + 1] are the least reduced cost of a byte less, and of one more, by
    the others from a place on. Others of a kind follow one another, the kind with the fewest layers
    first: once it is done with, how many of its layers a set has no longer matters. `first_open`
    [others + 1] counts such kinds, none beside a light choice, where the cheapest come first.
    """

    own: Enumeration
    gap: float
    others: Integers = field(init=False)
    rows: Floats = field(init=False)
    layers: Integers = field(init=False)
    first_open: Integers = field(init=False)
    _kinds: list[int] = field(init=False)
    _beyond: Floats = field(init=False)
    _added: Floats = field(init=False)
    _limits: Floats = field(init=False)
    _falls: Floats = field(init=False)
    _lighter: Floats = field(init=False)
    _less: Floats = field(init=False)
    _more: Floats = field(init=False)

    def __post_init__(self) -> None:
        """Begin with the one set without any other choice."""
        own, light = self.own, [] if self.own.light is None else [self.own.light]
        self._kinds = sorted(own.bases, key=lambda kind: own.held[kind])
        kinds = np.array(self._kinds, dtype=np.int64)
        base = np.zeros(len(own.held), dtype=np.int64)
        base[kinds] = [own.bases[kind] for kind in self._kinds]
        self._beyond = own.reduced - own.reduced[base[own.kind]]
        usable = (own.most > 0) & (own.held[own.kind] > 0) & (self._beyond <= self.gap)
        usable[[*base[kinds], *light]] = False
        places = np.flatnonzero(usable)
        order = (kinds[:, None] == own.kind[places]).argmax(axis=0) * (own.light is None)
        self.others = places[np.lexsort((self._beyond[places], order))]
        self.first_open = np.append(np.sort(order), len(kinds) * (own.light is None))
        every = np.concatenate([base[kinds], self.others, np.array(light, dtype=np.int64)])
        binding = _binding(own, every)
        self._limits = own.limits[binding]
        numbers = np.concatenate([own.reduced[None], own.memory[None], own.compared])
        numbers = np.concatenate([numbers, own.taken[binding]])
        is_own = own.kind[self.others][:, None] == kinds[None, :]
        change = numbers[:, self.others] - numbers[:, base[own.kind[self.others]]]
        self._added = np.concatenate([change.T, is_own], axis=1)
        first = numbers[:, base[kinds]] @ own.held[kinds].astype(np.float64)
        self.rows = np.concatenate([first, np.zeros(len(kinds))])[None, :]
        narrow = np.min_scalar_type(int(own.held.max()))  # there are many sets of many others
        self.layers = np.zeros((1, len(self.others)), dtype=narrow)
        taken = own.taken[binding]
        least = [taken[:, every[own.kind[every] == kind]].min(axis=1) for kind in kinds.tolist()]
        self._falls = taken[:, base[kinds]].T - np.array(least).reshape(len(kinds), len(binding))
        cost, memory = self._beyond[self.others], change[_MEMORY]
        self._less = _least_rates(cost, -memory)
        self._more = np.minimum(_least_rates(cost, memory), own.price)
        self._lighter = np.zeros(len(numbers))
        if own.light is not None:
            self._lighter = numbers[:, own.light] - numbers[:, base[own.kind[own.light]]]
        if len(own.needed) and not set(own.needed.tolist()) & {*own.bases.values(), *light}:
            places = np.flatnonzero(np.isin(self.others, own.needed))
            self.rows = self.rows + self._added[places]
            self.layers = np.eye(len(self.others), dtype=narrow)[places]

    def extend(self, place: int) -> None:
        """Add the sets that have layers of one more choice as well, in any number that may do."""
        column, added = int(self.others[place]), self._added[place]
        cost = float(self._beyond[column])
        most = np.minimum(self._left(self.rows, column), float(self.own.most[column]))
        if cost > 0.0:
            most = np.minimum(most, (self.gap - self.rows[:, _REDUCED]) * ((1.0 + ROUNDING) / cost))
        before = (most >= 1.0).nonzero()[0]
        times = most[before].astype(np.int64)
        number = np.arange(1, int(times.sum()) + 1) - (times.cumsum() - times).repeat(times)
        before = before.repeat(times)
        rows = self.rows.take(before, axis=0) + number[:, None] * added
        kept = self.may_do(rows, place + 1).nonzero()[0]
        layers = self.layers[before[kept]]
        layers[:, place] += number[kept].astype(layers.dtype)
        self.rows = np.concatenate([self.rows, rows[kept]])
        self.layers = np.concatenate([self.layers, layers])

    def _left(self, rows: Floats, column: int) -> Floats:
        """Return how many layers of a choice's kind rows leave to its base, [rows]."""
        kind = int(self.own.kind[column])
        place = self._kinds.index(kind) - len(self._kinds)
        return np.asarray(float(self.own.held[kind]) - rows[:, place])

    def keep(self, some: Integers | Booleans) -> None:
        """Keep some of the sets alone."""
        self.rows, self.layers = self.rows[some], self.layers[some]

    def may_do(self, rows: Floats, place: int) -> Booleans:
        """Return which rows the choices from a place on may complete within the gap and limits."""
        kept = self._reduced(rows, place) <= self.gap
        if len(self._limits):
            kinds = self._kinds
            left = self.own.held[kinds] - rows[:, rows.shape[1] - len(kinds) :]
            kept &= (self._taken(rows) - left @ self._falls <= self._limits).all(axis=1)
        return np.asarray(kept)

    def _reduced(self, rows: Floats, place: int) -> Floats:
        """Return the reduced cost that rows come to, with what memory costs them, at the least."""
        memory = lightest = rows[:, _MEMORY]
        if self.own.light is not None:
            lightest = memory + self._left(rows, self.own.light) * self._lighter[_MEMORY]
        over = np.maximum(lightest - self.own.room * (1.0 + FINE_ROUNDING), 0.0)
        free = np.maximum(self.own.room - memory, 0.0)
        paid = over * min(float(self._less[place]), NEVER) + free * self._more[place]
        return np.asarray(rows[:, _REDUCED] + paid)

    def _taken(self, rows: Floats) -> Floats:
        """Return what rows have of every limit that they may exceed, [rows, limits]."""
        first = _COMPARED + len(self.own.compared)
        return np.asarray(rows[:, first : first + len(self._limits)])

    def light_counts(self) -> Floats:
        """Return the fewest layers under the light choice with which sets fit, inf for none."""
        first = _COMPARED + len(self.own.compared)
        over = np.column_stack(
            [
                self.rows[:, _MEMORY] - self.own.room * (1.0 + FINE_ROUNDING),
                self._taken(self.rows) - self._limits,
            ]
        )
        change = np.array([self._lighter[_MEMORY], *self._lighter[first:]])
        ratio = over / np.where(change == 0.0, 1.0, -change)
        least = np.where(change < 0.0, np.ceil(ratio), 0.0).max(axis=1, initial=0.0)
        most = np.where(change > 0.0, np.floor(ratio), np.inf).min(axis=1)
        if self.own.light is not None:
            most = np.minimum(most, self._left(self.rows, self.own.light))
        is_never = ((change == 0.0) & (over > 0.0)).any(axis=1)
        return np.where((least <= most) & ~is_never, least, np.inf)

    def thin(self, place: int, check: Callable[[], None]) -> None:
        """Keep what may do and no other set with as many layers of each open kind or fewer beats.

        Whatever completes the one completes the other, as it leaves as many layers to their bases.
        """
        self.keep(self.may_do(self.rows, place))
        if len(self.own.compared) == 1:
            self.keep(self._cheapest(place))
            return
        first = _COMPARED + len(self.own.compared)
        limited = range(first, first + len(self._limits))
        kinds = range(first + len(self._limits) + self.first_open[place], self.rows.shape[1])
        measures = self.rows[:, [*range(_COMPARED, first), _MEMORY, *limited, *kinds]].T
        order = np.lexsort(measures[::-1])
        self.keep(np.sort(order[unbeaten_of(measures[:, order], check=check)]))

    def _cheapest(self, place: int) -> Integers:
        """Return the sets than which none of as many layers is cheaper in less memory.

        All, where limits may be exceeded.
        """
        if len(self._limits) or not len(self.rows):
            return np.arange(len(self.rows))
        used = self.rows[:, _COMPARED + 1 + self.first_open[place] :]
        order = np.lexsort((self.rows[:, _MEMORY], self.rows[:, _COMPARED], *used.T))
        rank = np.empty(len(order), dtype=np.int64)
        rank[np.argsort(self.rows[order, _MEMORY], kind="stable")] = np.arange(len(order))
        group = np.cumsum(np.diff(used[order], axis=0, prepend=used[order[:1]]).any(axis=1))
        lowest = rank - group * (len(order) + 1)
        return np.sort(order[lowest <= np.minimum.accumulate(lowest)])

    def narrow(self, place: int, count: int) -> None:
        """Keep about `count` sets of the least cost, all that are within a smaller gap."""
        reduced = self._reduced(self.rows, place)
        self.gap = float(np.partition(reduced, count)[count])
        self.keep(reduced < self.gap)

    def counts(self, some: Integers) -> Integers:
        """Return the layers of some sets by column, [sets, columns]."""
        found = np.zeros((len(some), len(self.own.kind)), dtype=np.int64)
        found[:, self.others] = self.layers[some]
        for kind, base in self.own.bases.items():
            own = self.own.kind == kind
            found[:, base] += self.own.held[kind] - found[:, own].sum(axis=1)
        return found


def _binding(own: Enumeration, columns: Integers) -> Integers:
    """Return the limits that some columns might exceed, if each kind took the most there is."""
    most = np.zeros((len(own.held), len(own.limits)))
    np.maximum.at(most, own.kind[columns], own.taken[:, columns].T)
    return np.flatnonzero(own.held @ most > own.limits)


def _least_rates(cost: Floats, change: Floats) -> Floats:
    """Return the least cost of a byte by the choices from each place on, [choices + 1]."""
    rate = np.full(len(cost) + 1, np.inf)
    np.divide(cost, change, out=rate[:-1], where=change > 0.0)
    return np.asarray(np.minimum.accumulate(rate[::-1])[::-1])


def sets_within(
    own: Enumeration, gap: float, *, most: int, effort: Effort, narrows: bool = False
) -> LayerSets:
    """Return the sets within a gap that no other beats.

    Choices take turns in taking layers over from the bases. A set is left out once what is left of
    the gap cannot pay for its memory: the bytes that it has too many, or leaves free. Where there
    are more than `most`, the gap of the sets that are returned `narrows`, if it may.

    Raises:
        TooManyError: if there are more, or no effort is left.
    """
    sets = LayerSets(own, gap)
    crowd = SETS_FEW
    closes = np.diff(sets.first_open) != 0
    for place in range(len(sets.others)):
        effort.check()
        sets.extend(place)
        effort.spend(UNITS_PER_TURN + PATTERN_UNITS_PER_SET * len(sets.rows))
        if len(sets.rows) > most and not narrows:
            raise TooManyError
        if len(sets.rows) > (SETS_FEW if closes[place] else crowd):
            if len(own.compared) > 1:
                effort.spend(PATTERN_UNITS_PER_PAIR * len(sets.rows) ** 2)
            sets.thin(place + 1, effort.check)
            if len(sets.rows) > most:
                sets.narrow(place + 1, most // 4)
            crowd = max(SETS_FEW, 2 * len(sets.rows))
    sets.keep(sets.may_do(sets.rows, len(sets.others)))
    return sets
