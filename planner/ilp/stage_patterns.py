"""Stage patterns: all ways to fill one rank that a plan within a gap may have.

Dominance: what no other equals or beats in every respect.

Patterns: every way to fill a rank that a plan below the cutoff may have.

Weak duality (`planner.ilp.lagrangian_decomposition`) gives each layer under each choice a reduced
cost d >= 0 such that a plan's step is at least a bound plus the sum of its reduced costs, plus what
memory it leaves free at the price of memory. A rank's pattern whose own sum exceeds what the cutoff
leaves is in no plan below it, and few are left once the bound is close: they are enumerated. The
technique is known from vehicle routing (Baldacci, Christofides and Mingozzi 2008,
doi:10.1007/s10107-007-0178-5).

Listing: the patterns of one load of a rank, by letting choices take over layers in turn.

With the load known, so is what memory every set of layers comes to, and what it costs to bring that
to the rank's room.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.engine import Effort, TooManyError
from planner.ilp.instance import Instance
from planner.ilp.settings import (
    COMPARED_FROM,
    DOMINANCE_BLOCK,
    NEVER,
    NOISE,
    PATTERN_UNITS_PER_PAIR,
    PATTERN_UNITS_PER_SET,
    PATTERN_UNITS_PER_TURN,
    ROUNDING,
)

Words = npt.NDArray[np.uint64]

_BITS = 64
_TIMES = 3  # measures, of which the first are sums of seconds


def unbeaten_of(measures: Floats, *, check: Callable[[], None] | None = None) -> Integers:
    """Return the columns of `measures`, in lexical order, that no earlier one equals or beats.

    Whatever beats a column comes before it, so that a block is compared with those kept so far;
    one that is not kept beats nothing. The first three measures are equal if they differ by
    rounding. `check` is called now and then, and may raise.
    """
    least = measures + _slack(measures, _TIMES)[:, None]
    if check is not None:
        check()
    if measures.shape[1] <= COMPARED_FROM:
        return _first_ones(_no_worse(measures, least))
    kept: list[Integers] = []
    for start in range(0, measures.shape[1], DOMINANCE_BLOCK):
        block = np.arange(start, min(start + DOMINANCE_BLOCK, measures.shape[1]))
        for earlier in kept:
            if check is not None:
                check()
            block = block[~_beats(measures[1:, earlier], least[1:, block]).any(axis=1)]
        own = _beats(measures[1:, block], least[1:, block])
        kept.append(block[_first_of_bits(own)])
    return np.concatenate(kept)


def _slack(measures: Floats, eased: int) -> Floats:
    """Return what rounding may make of the first measures, [measures]."""
    scale = np.abs(measures).max(axis=1, initial=0.0)
    return np.where(np.arange(len(measures)) < eased, NOISE * scale, 0.0)


def _first_ones(no_worse: Booleans) -> Integers:
    """Return the columns that no earlier one of those returned is no worse than, [columns]."""
    count = len(no_worse)
    beaten_by = no_worse & (np.arange(count)[:, None] < np.arange(count)[None, :])
    kept = np.asarray(~beaten_by.any(axis=0))
    open_ones = ~kept & ~beaten_by[kept].any(axis=0)
    for column in np.flatnonzero(open_ones).tolist():
        kept[column] = not (beaten_by[:, column] & kept).any()
    return np.flatnonzero(kept)


def _first_of_bits(no_worse: Words) -> Integers:
    """Return the same of sets as bits, [columns, words]."""
    count = len(no_worse)
    earlier = np.concatenate([np.zeros_like(no_worse[:1]), _prefixes(np.arange(count))[1:count]])
    beaten_by = no_worse & earlier
    kept = ~beaten_by.any(axis=1)
    open_ones = ~kept & ~(beaten_by & _bits(kept)).any(axis=1)
    for column in np.flatnonzero(open_ones).tolist():
        kept[column] = not (beaten_by[column] & _bits(kept)).any()
    return np.flatnonzero(kept)


def _beats(measures: Floats, eased: Floats) -> Words:
    """Return which of `measures` are no more than each of `eased` in every row, as bits.

    Shape [columns of `eased`, words].
    """
    found = _within(measures[0], eased[0])
    for own, most in zip(measures[1:], eased[1:], strict=True):
        np.bitwise_and(found, _within(own, most), out=found)
    return found


def _within(own: Floats, most: Floats) -> Words:
    """Return which of `own` are no more than each of `most`, as bits, [most, words].

    They come first in order, so that they are a prefix of it.
    """
    order = np.argsort(own, kind="stable")
    reached = np.searchsorted(own[order], most, side="right")
    found: Words = _prefixes(order).take(reached, axis=0)
    return found


def _prefixes(order: Integers) -> Words:
    """Return the sets of the first none, one, two and so on of columns in order, as bits.

    Shape [columns + 1, words].
    """
    sets = np.zeros((len(order) + 1, -(-len(order) // _BITS)), dtype=np.uint64)
    places = np.arange(1, len(order) + 1)
    sets[places, order // _BITS] = np.left_shift(np.uint64(1), (order % _BITS).astype(np.uint64))
    return np.bitwise_or.accumulate(sets, axis=0, out=sets)


def _bits(chosen: Booleans) -> Words:
    """Return a set as bits, [words]."""
    padded = np.zeros(-(-len(chosen) // _BITS) * _BITS, dtype=bool)
    padded[: len(chosen)] = chosen
    return np.packbits(padded, bitorder="little").view(np.uint64)


def _no_worse(measures: Floats, eased: Floats) -> np.ndarray:
    found = measures[0][:, None] <= eased[0][None, :]
    for one, other in zip(measures[1:], eased[1:], strict=True):
        found &= one[:, None] <= other[None, :]
    return np.asarray(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """All choices of all kinds on one rank side by side, each [columns]; `kind` says whose.

    `reduced` is d; `most` the layers that a choice may have.
    """

    kind: Integers
    reduced: Floats
    most: Integers
    pace: Floats
    fill: Floats
    end: Floats
    memory: Floats
    transient: Floats
    host: Floats

    def taken(self, places: Integers) -> Columns:
        """Return some of the columns."""
        return Columns(**{field.name: getattr(self, field.name)[places] for field in fields(self)})

    def followed_by(self, others: Columns) -> Columns:
        """Return these columns with others behind them."""
        return Columns(
            **{
                field.name: np.concatenate([getattr(self, field.name), getattr(others, field.name)])
                for field in fields(self)
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """What a rank may reach at most; `memory_price` is of a byte left free, `gap` of a pattern.

    `both` bounds repeats x pace + end; `own_pace`, `own_end` are the rank's without any layer.
    """

    gap: float
    memory_price: float
    capacity: float
    host: float
    pace: float
    end: float
    both: float
    repeats: float
    own_pace: float
    own_end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Patterns:
    """Patterns of one rank, each [patterns]; `load` is their place among the rank's loads.

    `excess` is what a plan costs beyond the bound at least for having the pattern; `counts`
    [patterns, columns] are its layers.
    """

    load: Integers
    excess: Floats
    pace: Floats
    fill: Floats
    end: Floats
    counts: Integers

    def taken(self, rows: Integers) -> Patterns:
        """Return some of the patterns."""
        return Patterns(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    @staticmethod
    def together(parts: Sequence[Patterns]) -> Patterns:
        """Return the patterns of all parts, of which there is one at least."""
        return Patterns(
            **{
                field.name: np.concatenate([getattr(part, field.name) for part in parts])
                for field in fields(Patterns)
            }
        )

    def at(self, load: int) -> Patterns:
        """Return the patterns as those of the load at a place."""
        return replace(self, load=np.full(len(self.load), load))


def rank_columns(
    instance: Instance, rank: int, *, reduced: Sequence[Floats], most: Sequence[Integers]
) -> Columns:
    """Return the choices of a rank; `reduced` and `most` are by kind [stages, choices]."""
    kinds = instance.kinds

    def side_by_side(values: Sequence[Floats | Integers]) -> np.ndarray:
        return np.concatenate([value[rank] for value in values])

    return Columns(
        kind=np.repeat(np.arange(len(kinds)), [len(kind.choice) for kind in kinds]),
        reduced=side_by_side(reduced),
        most=side_by_side(most),
        pace=side_by_side([kind.pace for kind in kinds]),
        fill=side_by_side([kind.fill for kind in kinds]),
        end=side_by_side([kind.end for kind in kinds]),
        memory=side_by_side([kind.memory for kind in kinds]),
        transient=side_by_side([kind.transient for kind in kinds]),
        host=side_by_side([kind.host for kind in kinds]),
    )


def undominated_patterns(patterns: Patterns) -> Patterns:
    """Return the patterns that no other of the same load equals or beats in fill, pace and end."""
    measures = np.stack([patterns.fill, patterns.pace, patterns.end])
    order = np.lexsort(measures[::-1])
    return patterns.taken(order[unbeaten_of(measures[:, order])])


_MEASURES = ("fill", "pace", "end", "memory", "host")
_MEMORY = 3


def patterns_of_load(
    columns: Columns,
    held: Integers,
    ceilings: Ceilings,
    *,
    needed: Integers | None = None,
    most: int,
    effort: Effort,
) -> Patterns:
    """Return the undominated patterns of `held` [kinds] layers within the ceilings.

    All layers start at their base, the choice of their kind with the least reduced cost, and
    choices take turns in taking some over. A set is left out once what is left of the gap cannot
    pay for its memory: the bytes that it has too many, or leaves free. Every pattern has a layer of
    one of the `needed` columns, if these are given.

    Raises:
        TooManyError: if there are more than `most` to look at, or no effort is left.
    """
    bases = _bases(columns, held)
    if bases is None:
        return _patterns(columns, np.zeros((0, len(columns.kind)), dtype=np.int64), ceilings)
    search = _Search(columns=columns, held=held, bases=bases, ceilings=ceilings)
    sets = search.start()
    if needed is not None and not set(needed.tolist()) & set(bases.values()):
        sets = search.with_one_of(sets, needed)
    for place in range(len(search.others)):
        effort.check()
        sets = search.extended(sets, place)
        effort.spend(PATTERN_UNITS_PER_TURN + PATTERN_UNITS_PER_SET * len(sets.reduced))
        if len(sets.reduced) > most:
            raise TooManyError
        if len(sets.reduced) > COMPARED_FROM:
            effort.spend(PATTERN_UNITS_PER_PAIR * len(sets.reduced) ** 2)
            sets = search.unbeaten(sets, effort.check)
    counts = search.counts(sets)
    return undominated_patterns(_patterns(columns, counts, ceilings))


def _bases(columns: Columns, held: Integers) -> dict[int, int] | None:
    """Return the base of each kind that is held, None where a kind has no choice."""
    found: dict[int, int] = {}
    for kind in np.flatnonzero(held).tolist():
        usable = (columns.kind == kind) & (columns.most > 0)
        own = np.flatnonzero(usable & np.isfinite(columns.reduced))
        if not len(own):
            return None
        found[kind] = int(own[columns.reduced[own].argmin()])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sets:
    """Layers under others than their bases: reduced cost and what they take, with the bases.

    `which` [sets, others] counts them, `used` [sets, kinds] how many of each kind they are;
    `measures` [sets, 5] are fill, pace, end, memory and host, `transient` [sets] is the largest
    without the bases'.
    """

    reduced: Floats
    measures: Floats
    transient: Floats
    used: Integers
    which: Integers

    def of(self, rows: Integers | Booleans) -> _Sets:
        """Return some of the sets."""
        return _Sets(
            reduced=self.reduced[rows],
            measures=self.measures[rows],
            transient=self.transient[rows],
            used=self.used[rows],
            which=self.which[rows],
        )


@dataclass(frozen=True, kw_only=True)
class _Search:
    """The enumeration for one load; `bases` by kind."""

    columns: Columns
    held: Integers
    bases: dict[int, int]
    ceilings: Ceilings

    @cached_property
    def others(self) -> Integers:
        """Return the choices besides the bases that the gap pays, cheapest first."""
        columns = self.columns
        mine = np.isin(columns.kind, list(self.bases)) & (columns.most > 0)
        mine &= self.beyond <= self.ceilings.gap
        mine[list(self.bases.values())] = False
        places = np.flatnonzero(mine)
        return places[np.argsort(self.beyond[places], kind="stable")]

    @cached_property
    def beyond(self) -> Floats:
        """Return the reduced cost of a layer beyond its base's, [columns]."""
        least = np.zeros(int(self.columns.kind.max()) + 1)
        for kind, base in self.bases.items():
            least[kind] = self.columns.reduced[base]
        return np.asarray(self.columns.reduced - least[self.columns.kind])

    @cached_property
    def resting(self) -> Floats:
        """Return the transients of the bases, [kinds]; 0 of kinds without layers."""
        found = np.zeros(len(self.held))
        for kind, base in self.bases.items():
            found[kind] = self.columns.transient[base]
        return found

    @cached_property
    def measures(self) -> Floats:
        """Return fill, pace, end, memory and host of a layer, [columns, 5]."""
        own = self.columns
        return np.stack([own.fill, own.pace, own.end, own.memory, own.host], axis=1)

    @cached_property
    def added(self) -> Floats:
        """Return what another choice adds to the measures in the place of the base, [others, 5]."""
        base = np.array([self.bases[int(kind)] for kind in self.columns.kind[self.others]], int)
        if not len(base):
            return np.zeros((0, len(_MEASURES)))
        return np.asarray(self.measures[self.others] - self.measures[base])

    @cached_property
    def rates(self) -> tuple[Floats, Floats]:
        """Return the least reduced cost of a byte less, and of one more, by the choices left.

        [others + 1] each; a byte left free costs its price if no choice takes it for less.
        """
        memory = self.added[:, _MEMORY]
        cost = self.beyond[self.others]
        less, more = np.full(len(cost) + 1, np.inf), np.full(len(cost) + 1, np.inf)
        np.divide(cost, -memory, out=less[:-1], where=memory < 0.0)
        np.divide(cost, memory, out=more[:-1], where=memory > 0.0)
        less = np.minimum.accumulate(less[::-1])[::-1]
        more = np.minimum.accumulate(more[::-1])[::-1]
        return less, np.minimum(more, self.ceilings.memory_price)

    @cached_property
    def largest(self) -> Floats:
        """Return the largest transient of the bases and of the choices left, [others + 1]."""
        own = np.append(self.columns.transient[self.others], self.resting.max(initial=0.0))
        return np.asarray(np.maximum.accumulate(own[::-1])[::-1])

    @cached_property
    def falls(self) -> Floats:
        """Return the most that a layer's measures fall under the choices left.

        [others + 1, kinds, 5], none of them positive.
        """
        found = np.zeros((len(self.others) + 1, len(self.held), len(_MEASURES)))
        kinds = self.columns.kind[self.others]
        for place in range(len(self.others) - 1, -1, -1):
            found[place] = found[place + 1]
            own = found[place, kinds[place]]
            np.minimum(own, self.added[place], out=own)
        return found

    def start(self) -> _Sets:
        """Return the one set without any other choice."""
        total = np.zeros(len(_MEASURES))
        for kind, base in self.bases.items():
            total += self.held[kind] * self.measures[base]
        bases = list(self.bases.values())
        reduced = float((self.held[list(self.bases)] * self.columns.reduced[bases]).sum())
        return _Sets(
            reduced=np.array([reduced]),
            measures=total[None, :],
            transient=np.zeros(1),
            used=np.zeros((1, len(self.held)), dtype=np.int64),
            which=np.zeros((1, len(self.others)), dtype=np.int64),
        )

    def with_one_of(self, sets: _Sets, needed: Integers) -> _Sets:
        """Return the one set with a layer of each needed choice in turn that the gap pays."""
        places = np.flatnonzero(np.isin(self.others, needed))
        sets = sets.of(np.zeros(len(places), dtype=np.int64))
        rows, columns = np.arange(len(places)), self.others[places]
        sets.used[rows, self.columns.kind[columns]] += 1
        sets.which[rows, places] += 1
        return replace(
            sets,
            reduced=sets.reduced + self.beyond[columns],
            measures=sets.measures + self.added[places],
            transient=np.maximum(sets.transient, self.columns.transient[columns]),
        )

    def extended(self, sets: _Sets, place: int) -> _Sets:
        """Return the sets with any number of layers of one more choice that may be in a plan."""
        column = int(self.others[place])
        kind, cost = int(self.columns.kind[column]), float(self.beyond[column])
        most = min(int(self.columns.most[column]), int(self.held[kind]))
        if cost > 0.0:
            most = min(most, int(self.ceilings.gap / cost * (1.0 + ROUNDING)))
        rows, number = np.divmod(np.arange(len(sets.reduced) * (most + 1)), most + 1)
        kept = sets.used[rows, kind] + number <= self.held[kind]
        kept &= sets.reduced[rows] + cost * number <= self.ceilings.gap
        rows, number = rows[kept], number[kept]
        grown = sets.of(rows)
        grown.used[:, kind] += number
        grown.which[:, place] += number
        grown = replace(
            grown,
            reduced=grown.reduced + cost * number,
            measures=grown.measures + number[:, None] * self.added[place],
            transient=np.where(
                number > 0,
                np.maximum(grown.transient, self.columns.transient[column]),
                grown.transient,
            ),
        )
        return grown.of(self._may_lead_to_a_plan(grown, place + 1))

    def _may_lead_to_a_plan(self, sets: _Sets, place: int) -> Booleans:
        """Return which sets the choices from `place` on may complete within the ceilings."""
        ceilings = self.ceilings
        less, more = self.rates[0][place], self.rates[1][place]
        left = (self.held[None, :] - sets.used).astype(np.float64)
        memory, transient = sets.measures[:, _MEMORY], self._transient(sets, left, place)
        room = ceilings.capacity * (1.0 + NOISE)
        over = np.maximum(memory + transient - room, 0.0)
        most = np.maximum(transient, self.largest[place])
        free = np.maximum(ceilings.capacity - memory - most, 0.0)
        paid = over * min(less, NEVER) + free * more
        kept = sets.reduced + paid <= ceilings.gap
        least = sets.measures + np.tensordot(left, self.falls[place], axes=1)
        pace, end = ceilings.own_pace + least[:, 1], ceilings.own_end + least[:, 2]
        kept &= (pace <= ceilings.pace) & (end <= ceilings.end)
        kept &= ceilings.repeats * pace + end <= ceilings.both
        return np.asarray(kept & (least[:, 4] <= ceilings.host))

    def _transient(self, sets: _Sets, left: Floats, place: int) -> Floats:
        """Return the largest transient at the least, [sets].

        A base keeps layers, and its transient, if the gap does not pay for others in their place.
        """
        if not self.resting.any() or place == len(self.others):
            stays = left > 0.0
        else:
            cheapest = float(self.beyond[self.others[place]])
            stays = left * cheapest > (self.ceilings.gap - sets.reduced)[:, None]
        resting = np.where(stays, self.resting, 0.0).max(axis=1)
        return np.asarray(np.maximum(sets.transient, resting))

    @cached_property
    def compared(self) -> Integers:
        """Return the places of the measures in which sets may differ for good or ill.

        Host bytes do not count where all layers together keep their limit under any choice.
        """
        places = np.arange(len(_MEASURES))
        usable = self.columns.most > 0
        most = np.zeros(len(self.held))
        np.maximum.at(most, self.columns.kind[usable], self.columns.host[usable])
        is_free = float(self.held @ most) <= self.ceilings.host
        return places[:-1] if is_free else places

    def unbeaten(self, sets: _Sets, check: Callable[[], None]) -> _Sets:
        """Return the sets that no other with as many layers of each kind or fewer beats.

        Whatever completes the one completes the other, as it leaves as many layers to their bases.
        Where bases have transients it leaves no more, as these count until no layer is left.
        """
        used = sets.used[:, np.flatnonzero(self.held)]
        own = [sets.measures[:, self.compared], used]
        if self.columns.transient.any():
            own += [-used, sets.transient[:, None]]
        measures = np.concatenate(own, axis=1).T
        order = np.lexsort(measures[::-1])
        return sets.of(np.sort(order[unbeaten_of(measures[:, order], check=check)]))

    def counts(self, sets: _Sets) -> Integers:
        """Return the layers by column, [sets, columns]."""
        found = np.zeros((len(sets.reduced), len(self.columns.kind)), dtype=np.int64)
        found[:, self.others] = sets.which
        for kind, base in self.bases.items():
            found[:, base] = self.held[kind] - sets.used[:, kind]
        return found


def _patterns(columns: Columns, counts: Integers, ceilings: Ceilings) -> Patterns:
    """Return layers by column [patterns, columns] as patterns, those within the ceilings."""
    whole = counts.astype(np.float64)
    transient = np.where(counts > 0, columns.transient, 0.0).max(axis=1, initial=0.0)
    memory = whole @ columns.memory + transient
    reduced = np.where(np.isfinite(columns.reduced), columns.reduced, 0.0)
    excess = whole @ reduced + ceilings.memory_price * (ceilings.capacity - memory)
    found = Patterns(
        load=np.zeros(len(counts), dtype=np.int64),
        excess=excess,
        pace=ceilings.own_pace + whole @ columns.pace,
        fill=whole @ columns.fill,
        end=ceilings.own_end + whole @ columns.end,
        counts=counts,
    )
    kept = (memory <= ceilings.capacity) & (whole @ columns.host <= ceilings.host)
    kept &= (found.pace <= ceilings.pace) & (found.end <= ceilings.end)
    kept &= ceilings.repeats * found.pace + found.end <= ceilings.both
    return found.taken(np.flatnonzero(kept & (excess <= ceilings.gap)))
