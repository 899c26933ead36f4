"""Chunks: which loads ranks can have one after another where each holds several parts of the chain.

Virtual stages come in turns (0 1 2 0 1 2) or in a V (0 1 2 2 1 0). Sums of loads leave aside where
the parts lie: ranks could take the heavy layers of one kind only, though kinds alternate. Here a
state is what the first ranks hold together and where their parts end, the latter as a class: two
places of one class are followed by the same kinds of layers, and so are interchangeable once it is
known how many layers are left. A chain of period P after o odd blocks has o + P classes.

In turns, the class that each part but the first begins in is guessed at the first rank; a guess
holds if the part before it ends in that class. Lengths add up to the chain's, so that what is put
together is a way to cut it. In a V the second part is read backwards from the chain's end, and the
last rank takes what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from planner.cost.configuration import Integers
from planner.ilp.instance import Instance
from planner.ilp.levels import Windows
from planner.ilp.loads import Load, load_weights
from planner.ilp.moves import Moves, numbered

_CELLS_MOST = 500_000
_NAMES_MOST = 1 << 61


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """A chain read in one direction: `codes` and `after` are [classes, lengths from 0 on]."""

    codes: Integers
    after: Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class _States:
    """What the first ranks hold, coded as a load [states], and blocks of it.

    `places` [states, parts] are the classes where parts go on, `guesses` those where they began.
    """

    held: Integers
    blocks: Integers
    places: Integers
    guesses: Integers


def moves_by_chunks(
    instance: Instance, windows: Windows, loads: Sequence[Sequence[Load]]
) -> list[Moves] | None:
    """Return every rank's moves between states; None where that is too much, or in no known order.

    The first state is 0, and so is the last rank's.
    """
    is_folded = _is_folded(instance)
    if not (is_folded or _is_in_turns(instance)):
        return None
    parts = len(instance.holders) // instance.stage_count
    readings = _readings(instance, parts, int(windows.most.max()), is_folded=is_folded)
    classes = max(len(reading.codes) for reading in readings)
    names = classes ** (2 * parts) * (instance.block_count + 1) ** len(instance.free_kinds)
    if names > _NAMES_MOST or classes ** (parts - 1) > _CELLS_MOST:
        return None
    walk = _Walk(
        instance=instance,
        windows=windows,
        loads=loads,
        readings=readings,
        classes=classes,
        is_folded=is_folded,
    )
    return walk.moves()


def _is_folded(instance: Instance) -> bool:
    ranks = tuple(range(instance.stage_count))
    return instance.holders == ranks + ranks[::-1]


def _is_in_turns(instance: Instance) -> bool:
    ranks = tuple(range(instance.stage_count))
    return instance.holders == ranks * (len(instance.holders) // instance.stage_count)


def _readings(
    instance: Instance, parts: int, longest: int, *, is_folded: bool
) -> tuple[_Reading, ...]:
    kinds = instance.block_kinds
    forward = _reading(instance, kinds, longest)
    if is_folded:
        return (forward, _reading(instance, kinds[::-1], longest))
    return (forward,) * parts


def _reading(instance: Instance, kinds: Integers, longest: int) -> _Reading:
    """Return what follows each class of places for every length up to the longest."""
    first, period = _period(kinds)
    weights = np.zeros(len(instance.kinds), dtype=np.int64)
    weights[list(instance.free_kinds)] = load_weights(instance)
    at = np.arange(first + period)[:, None] + np.arange(longest)[None, :]
    around = np.where(at < first + period, at, first + (at - first) % period)
    codes = np.cumsum(weights[kinds[around]], axis=1)
    ends = np.arange(first + period)[:, None] + np.arange(longest + 1)[None, :]
    return _Reading(
        codes=np.concatenate([np.zeros_like(codes[:, :1]), codes], axis=1),
        after=np.where(ends < first + period, ends, first + (ends - first) % period),
    )


def _period(kinds: Integers) -> tuple[int, int]:
    """Return how many blocks are odd and the period of the others, with the least sum of both."""
    best = (0, len(kinds))
    for period in range(1, len(kinds)):
        if period >= sum(best):
            break
        differs = np.flatnonzero(kinds[period:] != kinds[:-period])
        first = int(differs[-1]) + 1 if len(differs) else 0
        if first + period < sum(best):
            best = (first, period)
    return best


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    """The ranks one after another, and the states between them."""

    instance: Instance
    windows: Windows
    loads: Sequence[Sequence[Load]]
    readings: tuple[_Reading, ...]
    classes: int
    is_folded: bool

    def moves(self) -> list[Moves] | None:
        """Return every rank's moves, None where they are too many."""
        states = self._first()
        found: list[Moves] = []
        last = self.instance.stage_count - 1
        for rank in range(last + 1):
            if rank == last and self.is_folded:
                found.append(self._remainder(states, rank))
                break
            moved = self._moved(states, rank, is_last=rank == last)
            if moved is None:
                return None
            found.append(moved[0])
            states = moved[1]
        return found

    def _total(self) -> int:
        """Return the code of the whole chain."""
        counts = [self.instance.kinds[k].count for k in self.instance.free_kinds]
        return int(np.array(counts) @ load_weights(self.instance))

    def _first(self) -> _States:
        """Return the states before the first rank: one for each guess."""
        parts = len(self.readings)
        free = 0 if self.is_folded else parts - 1
        guesses = np.indices((self.classes,) * free).reshape(free, self.classes**free).T
        places = np.zeros((len(guesses), parts), dtype=np.int64)
        if free:
            places[:, 1:] = guesses
        nothing = np.zeros(len(guesses), dtype=np.int64)
        return _States(held=nothing, blocks=nothing, places=places, guesses=guesses)

    def _moved(self, states: _States, rank: int, *, is_last: bool) -> tuple[Moves, _States] | None:
        """Return a rank's moves and the states that they lead to."""
        if self._length_count(rank) * len(states.held) > _CELLS_MOST:
            return None
        lengths = self._lengths(rank)
        code = np.zeros((len(states.held), len(lengths)), dtype=np.int64)
        places = []
        for part, reading in enumerate(self.readings):
            at = states.places[:, part, None], lengths[None, :, part]
            code += reading.codes[at]
            places.append(reading.after[at])
        blocks = states.blocks[:, None] + lengths.sum(axis=1)[None, :]
        load, inside = self._load_of(code, rank)
        inside &= self._leaves_enough(blocks, rank)
        if is_last:
            inside &= states.held[:, None] + code == self._total()
            for part in range(len(self.readings) - 1):
                inside &= places[part] == states.guesses[:, part, None]
        start, way = np.nonzero(inside)
        if is_last:
            name = np.zeros(len(start), dtype=np.int64)
        else:
            ends = [part[start, way] for part in places]
            guesses = list(states.guesses[start].T)
            name = self._name(states.held[start] + code[start, way], [*ends, *guesses])
        before = start if rank else np.zeros_like(start)
        moves, names = numbered(before, name, load[start, way], max(len(self.loads[rank]), 1))
        return moves, self._named(names)

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
        least = max(int(self.windows.least[rank]), len(self.readings))
        return range(least, int(self.windows.most[rank]) + 1)

    def _load_of(self, code: Integers, rank: int) -> tuple[Integers, np.ndarray]:
        """Return the place of coded loads among the rank's, and whether they are there."""
        own = np.array(self.loads[rank], dtype=np.int64).reshape(
            -1, len(load_weights(self.instance))
        )
        if not len(own):
            return np.zeros_like(code), np.zeros(code.shape, dtype=bool)
        codes = own @ load_weights(self.instance)
        order = np.argsort(codes, kind="stable")
        place = np.minimum(np.searchsorted(codes[order], code), len(own) - 1)
        return order[place], codes[order][place] == code

    def _leaves_enough(self, blocks: Integers, rank: int) -> np.ndarray:
        left = self.instance.block_count - blocks
        least = int(self.windows.least[rank + 1 :].sum())
        most = int(self.windows.most[rank + 1 :].sum())
        inside: np.ndarray = (left >= least) & (left <= most)
        return inside

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

    def _remainder(self, states: _States, rank: int) -> Moves:
        """Return the moves of the last rank of a V: it holds what is left."""
        load, inside = self._load_of(self._total() - states.held, rank)
        start = np.flatnonzero(inside)
        return Moves(before=start, after=np.zeros_like(start), load=load[start])
