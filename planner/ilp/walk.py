"""Walk: from rank to rank along all ways to cut a chain, where ranks hold several parts of it.

`planner.ilp.chunks` says what a state is. A state is left behind as soon as the other ranks cannot
hold what it leaves, by the number of layers of each kind, by their least omega or by their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import comb, prod

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.edge_codes import EdgeCodes
from planner.ilp.instance import Instance
from planner.ilp.levels import Windows
from planner.ilp.loads import Load
from planner.ilp.moves import Moves, different, held_behind, least_costs, numbered
from planner.ilp.patterns import TooManyError
from planner.ilp.places import places_of
from planner.ilp.reading import Reading, reading_of
from planner.ilp.segments import load_weights

_CELLS_MOST = 1_000_000
_NAMES_MOST = 1 << 61
_ROUNDING = 1e-9

Excess = Callable[[int, Integers], Floats]
"""Says of a rank what ways to hold its load exceed, given layers [ways, parts, free kinds]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ways:
    """Ways on from states: where from and under which name to, [ways], and `lengths` [ways, parts].

    `key` says what the rank holds: the place of its load, and the edges of its parts.
    """

    before: Integers
    name: Integers
    key: Integers
    lengths: Integers

    def taken(self, mask: Booleans) -> _Ways:
        """Return some of the ways."""
        return _Ways(
            before=self.before[mask],
            name=self.name[mask],
            key=self.key[mask],
            lengths=self.lengths[mask],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _States:
    """What the first ranks hold, coded as a load [states], and blocks of it.

    `places` [states, parts] are the classes where parts go on, `guesses` those where they began.
    """

    held: Integers
    blocks: Integers
    places: Integers
    guesses: Integers


def walk_of(instance: Instance, windows: Windows, loads: Sequence[Sequence[Load]]) -> Walk | None:
    """Return the walk over the ranks; None in no known order, or with too many classes."""
    is_folded = _is_folded(instance)
    if not (is_folded or _is_in_turns(instance)):
        return None
    parts = len(instance.holders) // instance.stage_count
    longest = int(windows.most.max())
    forward = reading_of(instance, longest)
    readings = (forward,) * parts
    if is_folded:
        readings = (forward, reading_of(instance, longest, is_backwards=True))
    classes = max(len(reading.codes) for reading in readings)
    free = len(instance.free_kinds)
    codes = EdgeCodes(
        readings=readings,
        last=instance.stage_count - 1,
        is_folded=is_folded,
        base=0 if instance.extras is None else int(instance.block_classes.max()) + 2,
    )
    names = classes ** (2 * parts) * (instance.block_count + 1) ** free
    if max(names, codes.span() * max(map(len, loads))) > _NAMES_MOST:
        return None
    held = [np.array(own, dtype=np.int64).reshape(len(own), free) for own in loads]
    measures = np.column_stack([np.eye(free), least_costs(instance)])
    return Walk(
        instance=instance,
        windows=windows,
        loads=held,
        measures=measures,
        behind=tuple(zip(*held_behind([own @ measures for own in held]), strict=True)),
        readings=readings,
        codes=codes,
        classes=classes,
        is_folded=is_folded,
    )


def _is_folded(instance: Instance) -> bool:
    ranks = tuple(range(instance.stage_count))
    return instance.holders == ranks + ranks[::-1]


def _is_in_turns(instance: Instance) -> bool:
    ranks = tuple(range(instance.stage_count))
    return instance.holders == ranks * (len(instance.holders) // instance.stage_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """The ranks one after another, and the states between them.

    `loads` are by rank [loads, free kinds]. What ranks hold is measured in several ways, `measures`
    [free kinds, ways]: layers of each kind, their least omega and their least bytes; `behind` is
    the least and the most that the ranks behind each one hold, [ways] each.
    """

    instance: Instance
    windows: Windows
    loads: Sequence[Integers]
    measures: Floats
    behind: Sequence[tuple[Floats, Floats]]
    readings: tuple[Reading, ...]
    codes: EdgeCodes
    classes: int
    is_folded: bool

    def moves(self) -> list[tuple[Moves, Integers]] | None:
        """Return every rank's moves with the keys of what they hold, None where they are too many.

        A key is the place of a load with the code of its edges; moves say which key.
        """
        states = self._first()
        found: list[tuple[Moves, Integers]] = []
        last = self.instance.stage_count - 1
        if states is None:
            return None
        for rank in range(last + 1):
            if rank == last and self.is_folded:
                found.append(self._numbered(self._remainder(states, rank))[:2])
                break
            moved = self._moved(states, rank, is_last=rank == last)
            if moved is None:
                return None
            found.append(moved[:2])
            states = moved[2]
        return found

    def lengths(
        self, edges: Sequence[Load] | None = None, excess: Excess | None = None
    ) -> Integers | None:
        """Return the lengths of the ranks' parts on one way, [stages, parts], None without any.

        There is one load a rank, with given edges or any. With `excess`, the way is one on which
        the largest of the ranks' is least.

        Raises:
            TooManyError: if there are too many ways to look at.
        """
        states = self._first()
        if states is None:
            raise TooManyError
        trail: list[tuple[Integers, Integers]] = []
        last = self.instance.stage_count - 1
        worst = np.full(len(states.held), -np.inf)
        for rank in range(last if self.is_folded else last + 1):
            ways = self._ways(states, rank, is_last=rank == last)
            if ways is None:
                raise TooManyError
            ways = ways if edges is None else ways.taken(ways.key == self.codes.key_of(edges[rank]))
            if not len(ways.name):
                return None
            reached = worst[ways.before]
            if excess is not None:
                reached = np.maximum(reached, excess(rank, self._counts(states, ways)))
            order = np.lexsort((reached, ways.name))
            names, first = np.unique(ways.name[order], return_index=True)
            kept = order[first]
            trail.append((ways.before[kept], ways.lengths[kept]))
            worst = reached[kept]
            states = self._named(names)
        at, found = 0, []
        if self.is_folded:
            ends = self._remainder(states, last)
            ends = ends if edges is None else ends.taken(ends.key == self.codes.key_of(edges[last]))
            if not len(ends.before):
                return None
            at = int(ends.before[worst[ends.before].argmin()])
            left = self.instance.block_count - int(states.blocks[at])
            found.append(np.array([left // 2, left - left // 2]))
        return _traced(trail, at, found)

    def _counts(self, states: _States, ways: _Ways) -> Integers:
        """Return the layers that each part of a rank holds, [ways, parts, free kinds]."""
        parts = [
            reading.codes[states.places[ways.before, part], ways.lengths[:, part]]
            for part, reading in enumerate(self.readings)
        ]
        base = self.instance.block_count + 1
        return np.asarray(np.stack(parts, axis=1)[:, :, None] // load_weights(self.instance) % base)

    def _total(self) -> int:
        """Return the code of the whole chain."""
        counts = [self.instance.kinds[k].count for k in self.instance.free_kinds]
        return int(np.array(counts) @ load_weights(self.instance))

    def _first(self) -> _States | None:
        """Return the states before the first rank, one for each guess; None if there are many."""
        parts = len(self.readings)
        free = 0 if self.is_folded else parts - 1
        known = [np.flatnonzero(self._ends(part, -1)) for part in range(1, free + 1)]
        count = prod(map(len, known))
        if count * self._length_count(0) > _CELLS_MOST:
            return None
        guesses = np.array(list(product(*known)), dtype=np.int64).reshape(count, free)
        places = np.zeros((len(guesses), parts), dtype=np.int64)
        if free:
            places[:, 1:] = guesses
        nothing = np.zeros(len(guesses), dtype=np.int64)
        return _States(held=nothing, blocks=nothing, places=places, guesses=guesses)

    def _moved(
        self, states: _States, rank: int, *, is_last: bool
    ) -> tuple[Moves, Integers, _States] | None:
        """Return a rank's moves, the keys of what they hold, and the states that they lead to."""
        ways = self._ways(states, rank, is_last=is_last)
        if ways is None:
            return None
        if not rank:
            ways = replace(ways, before=np.zeros_like(ways.before))
        moves, keys, names = self._numbered(ways)
        return moves, keys, self._named(names)

    def _numbered(self, ways: _Ways) -> tuple[Moves, Integers, Integers]:
        """Return ways as moves, the keys that these count, and the names of the states reached."""
        if not self.codes.is_edged:
            count = int(ways.key.max(initial=0)) + 1
            moves, names = numbered(ways.before, ways.name, ways.key, count)
            return moves, np.arange(count), names
        keys, places = different(ways.key)
        moves, names = numbered(ways.before, ways.name, places, max(len(keys), 1))
        return moves, keys, names

    def _ways(self, states: _States, rank: int, *, is_last: bool) -> _Ways | None:
        """Return every way on from the states, None where that is too much."""
        if self._length_count(rank) * len(states.held) > _CELLS_MOST:
            return None
        lengths = self._lengths(rank)
        code = self._codes(states.places, lengths)
        load, inside = self._load_of(code, rank)
        if is_last:
            inside &= states.held[:, None] + code == self._total()
        start, way = np.nonzero(inside)
        code, load = code[start, way], load[start, way]
        places = [
            reading.after[states.places[start, part], lengths[way, part]]
            for part, reading in enumerate(self.readings)
        ]
        kept = self._leaves_enough(states.blocks[start] + lengths[way].sum(axis=1), rank)
        for part, reached in enumerate(places):
            kept &= self._ends(part, rank)[reached]
        if is_last:
            for part in range(len(self.readings) - 1):
                kept &= places[part] == states.guesses[start, part]
        kept[kept] = self._leaves_what_fits((states.held[start] + code)[kept], rank)
        start, way, code, load = start[kept], way[kept], code[kept], load[kept]
        ends = np.stack(places, axis=1)[kept]
        if is_last:
            name = np.zeros(len(start), dtype=np.int64)
        else:
            guesses = list(states.guesses[start].T)
            name = self._name(states.held[start] + code, [*ends.T, *guesses])
        key = self.codes.keys(rank, load, states.places[start], ends)
        return _Ways(before=start, name=name, key=key, lengths=lengths[way])

    def _codes(self, places: Integers, lengths: Integers) -> Integers:
        """Return the codes of what parts from `places` on hold, [states, ways]."""
        code = np.zeros((len(places), len(lengths)), dtype=np.int64)
        for part, reading in enumerate(self.readings):
            code += reading.codes[:, lengths[:, part]][places[:, part]]
        return code

    def _length_count(self, rank: int) -> int:
        """Return how many lengths a rank's parts may have together."""
        return sum(comb(total - 1, len(self.readings) - 1) for total in self._totals(rank))

    def _lengths(self, rank: int) -> Integers:
        """Return the lengths that a rank's parts may have together, [ways, parts]."""
        parts = len(self.readings)
        ends = [
            (0, *inner, total)
            for total in self._totals(rank)
            for inner in combinations(range(1, total), parts - 1)
        ]
        return np.diff(np.array(ends, dtype=np.int64).reshape(len(ends), parts + 1), axis=1)

    def _totals(self, rank: int) -> range:
        """Return how many blocks a rank may hold."""
        sizes = self.loads[rank].sum(axis=1)
        if not len(sizes):
            return range(0)
        least = max(int(self.windows.least[rank]), len(self.readings), int(sizes.min()))
        return range(least, min(int(self.windows.most[rank]), int(sizes.max())) + 1)

    def _load_of(self, code: Integers, rank: int) -> tuple[Integers, np.ndarray]:
        """Return the place of coded loads among the rank's, and whether they are there."""
        own = self.loads[rank]
        if not len(own):
            return np.zeros_like(code), np.zeros(code.shape, dtype=bool)
        codes = own @ load_weights(self.instance)
        if len(own) == 1:
            return np.zeros_like(code), code == codes[0]
        order = np.argsort(codes, kind="stable")
        place = np.minimum(np.searchsorted(codes[order], code), len(own) - 1)
        return order[place], codes[order][place] == code

    def _leaves_enough(self, blocks: Integers, rank: int) -> np.ndarray:
        left, behind = self.instance.block_count - blocks, slice(rank + 1, None)
        least, most = self.windows.least[behind].sum(), self.windows.most[behind].sum()
        return np.asarray((left >= least) & (left <= most))

    def _leaves_what_fits(self, held: Integers, rank: int) -> Booleans:
        """Return whether the ranks behind may hold what coded loads leave, by every measure."""
        counts = np.array([self.instance.kinds[k].count for k in self.instance.free_kinds])
        codes, places = different(held)
        base = self.instance.block_count + 1
        left = counts - codes[:, None] // load_weights(self.instance) % base
        amounts, (least, most) = left @ self.measures, self.behind[rank]
        room = _ROUNDING * np.abs(counts @ self.measures)
        fits = ((amounts >= least - room) & (amounts <= most + room)).all(axis=1)
        return np.asarray(fits[places])

    def _ends(self, part: int, rank: int) -> Booleans:
        """Return in which classes a part of a rank may end, [classes]; of rank -1, where it begins.

        In a V the second part is read from the end of the chain.
        """
        stages = self.instance.stage_count
        earliest, latest = places_of(self.instance)
        found = np.zeros(self.classes, dtype=bool)
        if self.is_folded and part:
            cut, blocks = 2 * stages - 1 - rank, self.instance.block_count
            first, last = blocks - int(latest[cut]), blocks - int(earliest[cut])
        else:
            cut = part * stages + rank + 1
            first, last = int(earliest[cut]), int(latest[cut])
        own = self.readings[part].classes_within(first, last)
        found[: len(own)] = own
        return found

    def _name(self, held: Integers, classes: Sequence[Integers]) -> Integers:
        """Return one number for what is held and the classes of a state."""
        name = held
        for one in classes:
            name = name * self.classes + one
        return name

    def _named(self, names: Integers) -> _States:
        """Return the states of names."""
        parts = len(self.readings)
        free = 0 if self.is_folded else parts - 1
        digits = []
        rest = names
        for _ in range(parts + free):
            digits.append(rest % self.classes)
            rest = rest // self.classes
        digits.reverse()
        places = np.stack(digits[:parts], axis=1)
        guesses = np.stack(digits[parts:], axis=1) if free else np.zeros((len(names), 0), np.int64)
        base = self.instance.block_count + 1
        blocks = (rest[:, None] // load_weights(self.instance) % base).sum(axis=1)
        return _States(held=rest, blocks=blocks, places=places, guesses=guesses)

    def _remainder(self, states: _States, rank: int) -> _Ways:
        """Return the ways of the last rank of a V: it holds what is left."""
        load, inside = self._load_of(self._total() - states.held, rank)
        start = np.flatnonzero(inside)
        places = states.places[start]
        return _Ways(
            before=start,
            name=np.zeros_like(start),
            key=self.codes.keys(rank, load[start], places, places),
            lengths=np.zeros((len(start), len(self.readings)), dtype=np.int64),
        )


def _traced(trail: Sequence[tuple[Integers, Integers]], at: int, found: list[Integers]) -> Integers:
    """Return the lengths on the way back from a state, before those `found` behind it."""
    for before, lengths in reversed(trail):
        found.append(lengths[at])
        at = int(before[at])
    return np.stack(found[::-1])
