"""Cut point graph: which loads follow one another along the chain of layers.

Every question is asked rank by rank: a state is what the first ranks hold together, and `Moves`
lead from the states before a rank to those behind it, each with one of its loads.
`rank_moves_along` leaves those on a whole way alone, as `RankMoves`, for dynamic programming over
ranks (`least_sums`, `best_loads`). A state is a number of blocks where only that matters, the place
of a cut where ranks follow one another along the chain, and layers of every kind otherwise
(`moves_by_sums`).

Edges are what the cuts at the ends of a rank's part cost it. A cut costs more behind some classes
of blocks than behind others (`instance.CutExtras`). Where each rank holds one part of the chain, it
has an edge at either end beside its layers: a layer with one choice, whose kind is what the edge
adds. To knapsacks, patterns and bounds an edge is a layer like any other. A load with its edges
ends with two more numbers, the edge where the part begins and the one where it ends: 1 + the class
of the block before the cut, 0 at the chain's own ends. Where ranks hold several parts, every cut is
priced at the least that it adds anywhere.

Where ranks hold several parts of the chain (`Walk`), virtual stages come in turns (0 1 2 0 1 2) or
in a V (0 1 2 2 1 0). Sums of loads leave aside where the parts lie: ranks could take the heavy
layers of one kind only, though kinds alternate. Here a state is what the first ranks hold together
and where their parts end, the latter as a class: two places of one class are followed by the same
kinds of layers, and so are interchangeable once it is known how many layers are left. A chain of
period P after o odd blocks has o + P classes. A state is left behind as soon as the other ranks
cannot hold what it leaves, by the number of layers of each kind, by their least omega or by their
bytes.

In turns, the class that each part but the first begins in is guessed at the first rank; a guess
holds if the part before it ends in that class. Lengths add up to the chain's, so that what is put
together is a way to cut it. In a V the second part is read backwards from the chain's end, and the
last rank takes what is left.

Where classes are too many to guess, segments of the chain that share no kind of layers (encoder and
decoder, tower and decoder) end in some virtual stage each. Those are guessed; sums of loads then
keep apart what goes before and behind (`moves_by_segments`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement, product
from math import comb, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.instance import CutExtras, Instance, even_cuts, everywhere, load_of_cuts
from planner.ilp.lagrangian_bound import Windows, everything, scaled
from planner.ilp.problem import TooManyError
from planner.ilp.settings import (
    CELLS_AT_ONCE,
    CUTS_TRIED,
    GUESSES_MOST,
    MOVE_CELLS,
    ROUNDING,
    WALK_CELLS,
)
from planner.ilp.stage_loads import Load, load_weights, parts_of_loads, segments_of
from planner.ilp.stage_patterns import Columns


def edge_kind_count(instance: Instance) -> int:
    """Return how many kinds of edges a rank has at most: none where all cuts cost the same."""
    if instance.extras is None:
        return 0
    return 2 * int(instance.extras.pace.shape[1])


def edges_at(instance: Instance, places: Integers) -> Integers:
    """Return the edges of cuts behind so many blocks, of the shape of `places`."""
    before = instance.block_classes[np.maximum(places, 1) - 1]
    is_cut = (places > 0) & (places < instance.block_count)
    return np.asarray(np.where(is_cut, 1 + before, 0))


def loads_with_edges(
    instance: Instance, cuts: Integers, loads: Sequence[Collection[Load]], *, most: int
) -> list[list[Load]] | None:
    """Return those of every rank's loads that lie between its cuts, with their edges.

    `cuts` [2, stages + 1] are the earliest and latest. None where there are more than `most`.
    """
    prefix = instance.prefix_counts[:, list(instance.free_kinds)]
    edges = edges_at(instance, np.arange(instance.block_count + 1)).tolist()
    found: list[list[Load]] = []
    total = 0
    for rank, own in enumerate(loads):
        known, listed = set(own), dict[Load, None]()
        starts, ends = (range(cuts[0, side], cuts[1, side] + 1) for side in (rank, rank + 1))
        for start, end in product(starts, ends):
            load = tuple((prefix[end] - prefix[start]).tolist())
            if start < end and load in known:
                listed[*load, edges[start], edges[end]] = None
        total += len(listed)
        if total > most:
            return None
        found.append(list(listed))
    return found


def held_edges(instance: Instance, rank: int, loads: Sequence[Load]) -> list[list[int]]:
    """Return how many edges of each kind loads have; nothing where cuts cost the same.

    Loads without edges have none: their ranks are priced as if cuts added nothing.
    """
    if instance.extras is None:
        return [[] for _ in loads]
    added, kinds = _kinds_of_edges(instance, rank)
    found = []
    for load in loads:
        held = [0] * len(added)
        edges = load[len(instance.free_kinds) :] or (0,) * len(kinds)
        for side, edge in zip(kinds, edges, strict=True):
            if edge and side[edge - 1] >= 0:
                held[side[edge - 1]] += 1
        found.append(held)
    return found


def with_edges(instance: Instance, rank: int, columns: Columns) -> Columns:
    """Return the choices of a rank with its edges behind them, one choice for each kind of edge."""
    if instance.extras is None:
        return columns
    added, kinds = _kinds_of_edges(instance, rank)
    pace, fill, held = np.array(added).reshape(len(added), 3).T
    nothing = np.zeros(len(added))
    more = Columns(
        kind=len(instance.kinds) + np.arange(len(added)),
        most=np.full(len(added), len(kinds), dtype=np.int64),
        pace=pace,
        fill=fill,
        end=nothing,
        memory=held,
        transient=nothing,
        host=nothing,
    )
    return columns.followed_by(more)


_Added = tuple[float, float, float]


def _kinds_of_edges(instance: Instance, rank: int) -> tuple[list[_Added], list[list[int]]]:
    """Return pace, fill and bytes of each kind of edge of a rank, and which kind an edge is.

    The latter by the end of the rank's part and the class before the cut, -1 of what adds nothing.
    """
    assert instance.extras is not None  # noqa: S101 - no edges otherwise
    known: dict[_Added, int] = {}
    kinds: list[list[int]] = []
    for cut, is_end in ((rank - 1, False), (rank, True)):
        ends = _extras_at(instance.extras, cut, is_end=is_end)
        kinds.append([known.setdefault(one, len(known)) if any(one) else -1 for one in ends])
    return list(known), kinds


def _extras_at(extras: CutExtras, cut: int, *, is_end: bool) -> list[_Added]:
    """Return what one cut adds by the class of the block before it, nothing where there is none."""
    cuts, classes = extras.pace.shape
    if not 0 <= cut < cuts:
        return [(0.0, 0.0, 0.0)] * classes
    held = extras.first_bytes if is_end else extras.second_bytes
    columns = (extras.pace[cut], extras.fill[cut], held[cut])
    return list(zip(*(column.tolist() for column in columns), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A chain read in one direction: `codes` and `after` are [classes, lengths from 0 on].

    `codes` are loads. The first `odd` places are classes of their own, the others take turns.
    """

    codes: Integers
    after: Integers
    odd: int

    def classes_within(self, earliest: int, latest: int) -> Booleans:
        """Return which classes places between two, in the direction of reading, have, [classes]."""
        places = np.arange(max(earliest, 0), latest + 1)
        found = np.zeros(len(self.codes), dtype=bool)
        found[_wrapped(places, self.odd, len(self.codes))] = True
        return found


def reading_of(
    instance: Instance, longest: int, codes: Integers, *, is_backwards: bool = False
) -> Reading:
    """Return what follows each class of places for every length up to the longest.

    `codes` are those of a layer of each free kind.
    """
    kinds = instance.block_kinds[::-1] if is_backwards else instance.block_kinds
    odd, period = _period(kinds)
    count = odd + period
    weights = np.zeros(len(instance.kinds), dtype=np.int64)
    weights[list(instance.free_kinds)] = codes
    places = np.arange(count)[:, None] + np.arange(longest + 1)[None, :]
    read = np.minimum(_wrapped(places, odd, count), len(kinds) - 1)
    held = np.cumsum(weights[kinds[read[:, :-1]]], axis=1)
    return Reading(
        codes=np.concatenate([np.zeros_like(held[:, :1]), held], axis=1),
        after=_wrapped(places, odd, count),
        odd=odd,
    )


def _wrapped(places: Integers, odd: int, count: int) -> Integers:
    """Return the classes of places: the first `odd` of `count` are their own."""
    turns = odd + (places - odd) % max(count - odd, 1)
    return np.asarray(np.where(places < count, places, turns))


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
class Moves:
    """Ways of one rank from states to states, by number, and the place of its load, [moves].

    Of those to one state, ones from a lesser state come first, and then ones with a lesser load.
    """

    before: Integers
    after: Integers
    load: Integers


def different(codes: Integers) -> tuple[Integers, Integers]:
    """Return the different ones of codes that are not negative, in order, and the place of each."""
    most = int(codes.max(initial=0))
    if most >= WALK_CELLS:
        names, places = np.unique(codes, return_inverse=True)
        return names, places
    marks = np.zeros(most + 1, dtype=bool)
    marks[codes] = True
    return np.flatnonzero(marks), (np.cumsum(marks) - 1)[codes]


def _are_among(states: Integers, some: Integers) -> Booleans:
    """Return which of some states, by number, are among others."""
    marks = np.zeros(int(max(states.max(initial=0), some.max(initial=0))) + 1, dtype=bool)
    marks[some] = True
    return np.asarray(marks[states])


def with_loads(moves: Sequence[Moves], kept: Sequence[Booleans]) -> list[Moves]:
    """Return the moves that a way from the first rank on has with loads that are kept, [loads]."""
    reached = np.zeros(1, dtype=np.int64)
    found = []
    for own, mask in zip(moves, kept, strict=True):
        inside = mask[own.load] & _are_among(own.before, reached)
        reached = own.after[inside]
        found.append(
            Moves(before=own.before[inside], after=own.after[inside], load=own.load[inside])
        )
    return found


def numbered(
    before: Integers, after: Integers, load: Integers, count: int
) -> tuple[Moves, Integers]:
    """Return the different moves to states given by a name, and the names in order of their number.

    `count` is the number of loads of the rank.
    """
    names, numbers = different(after)
    width = len(names) * count
    key = np.sort(before * width + numbers * count + load)
    key = key[np.diff(key, prepend=-1) > 0]  # np.unique hashes, which is slower
    moves = Moves(before=key // width, after=key % width // count, load=key % count)
    return moves, names


def moves_by_sums(
    instance: Instance,
    loads: Sequence[Sequence[Load]],
    *,
    most: float = float("inf"),
) -> list[Moves]:
    """Return every rank's moves where ranks share the layers of every kind as they like.

    A state is kept if the ranks behind can hold what it leaves, kind by kind, in all, by the least
    omega and by the least bytes.

    Raises:
        TooManyError: if there are more than `most` in all, or too many to be looked at.
    """
    free = list(instance.free_kinds)
    totals = np.array([instance.kinds[k].count for k in free])
    weights = load_weights(instance)
    held = [np.array(own, dtype=np.int64).reshape(len(own), len(free)) for own in loads]
    ones = np.ones(len(totals))
    measures = np.column_stack([np.eye(len(totals)), ones, least_costs(instance)])
    counted = [own @ measures for own in held]
    fewest, largest = held_behind(counted)
    states = np.zeros(1, dtype=np.int64)
    found: list[Moves] = []
    for rank, own in enumerate(counted):
        if own.size * len(states) > MOVE_CELLS:
            raise TooManyError
        left = (totals - states[:, None] // weights % (totals + 1)) @ measures
        room = ROUNDING * np.abs(totals @ measures)
        inside = np.ones((len(left), len(own)), dtype=bool)
        for column, least, most_left in zip(
            range(measures.shape[1]), fewest[rank] - room, largest[rank] + room, strict=True
        ):
            behind = left[:, None, column] - own[None, :, column]
            inside &= (behind >= least) & (behind <= most_left)
        start, load = np.nonzero(inside)
        states, after = different(states[start] + (held[rank] @ weights)[load])
        found.append(Moves(before=start, after=after, load=load))
        if sum(len(one.load) for one in found) > most:
            raise TooManyError
    return ended(found, np.flatnonzero(states == totals @ weights))


def moves_by_segments(
    instance: Instance, loads: Sequence[Sequence[Load]], *, most: float
) -> list[Moves]:
    """Return the same where it is guessed in which virtual stages the segments of the chain end.

    A segment has kinds of layers that no other has, as a vision tower beside its decoder. Virtual
    stages between the ends of two segments hold layers of the latter alone: what ranks hold of each
    goes with one guess, which they share.

    Raises:
        TooManyError: if there are more than `most` in all, or too many to be looked at.
    """
    segments, stages = segments_of(instance), len(instance.holders)
    count = len(segments)
    guesses = comb(stages + count - 2, count - 1)
    if count == 1 or guesses * instance.stage_count > GUESSES_MOST:
        return moves_by_sums(instance, loads, most=most)
    inside = [parts_of_loads(instance, segments, own) for own in loads]
    found: list[list[Moves]] = []
    for ends in combinations_with_replacement(range(stages), count - 1):
        places = _places(instance, inside, (*ends, stages - 1))
        if not all(map(len, places)):
            continue
        some = [[own[at] for at in kept] for own, kept in zip(loads, places, strict=True)]
        moves = moves_by_sums(instance, some, most=most)
        most -= sum(len(one.load) for one in moves)
        found.append(
            [replace(one, load=kept[one.load]) for one, kept in zip(moves, places, strict=True)]
        )
    return _side_by_side([moves for moves in found if len(moves[-1].load)], len(loads))


def _places(
    instance: Instance, inside: Sequence[Sequence[Booleans]], ends: Sequence[int]
) -> list[Integers]:
    """Return the places of each rank's loads where segments end in given virtual stages.

    `inside` says by rank and segment in how many parts loads may hold it, [parts, loads].
    """
    holders = np.array(instance.holders)
    masks = [np.ones(own[0].shape[1], dtype=bool) for own in inside]
    before = -1
    for segment, end in enumerate(ends):
        sure = np.bincount(holders[min(before + 1, end) : end + 1], minlength=instance.stage_count)
        other = int(holders[before]) if 0 <= before < end else -1
        for rank, own in enumerate(inside):
            number = int(sure[rank])
            may = own[segment][number]
            masks[rank] &= may | own[segment][number + 1] if rank == other else may
        before = end
    return [np.flatnonzero(mask) for mask in masks]


def _side_by_side(parts: Sequence[Sequence[Moves]], rank_count: int) -> list[Moves]:
    """Return moves that have nothing but the first state and the last in common."""
    nothing = np.zeros(0, dtype=np.int64)
    found, starts = [], [0] * len(parts)
    for rank in range(rank_count):
        sizes = [int(one[rank].after.max()) + 1 for one in parts]
        ends = np.cumsum([0, *sizes])[:-1].tolist() if rank + 1 < rank_count else [0] * len(parts)
        own = [(one[rank], *at) for one, *at in zip(parts, starts, ends, strict=True)]
        found.append(
            Moves(
                before=np.concatenate([nothing, *(one.before + at for one, at, _ in own)]),
                after=np.concatenate([nothing, *(one.after + at for one, _, at in own)]),
                load=np.concatenate([nothing, *(one.load for one, _, _ in own)]),
            )
        )
        starts = ends
    return found


def least_costs(instance: Instance) -> Floats:
    """Return the least omega and the least bytes of each free kind, [free kinds, 2].

    What ranks hold at the most is near the limit by these.
    """
    kinds = [instance.kinds[k] for k in instance.free_kinds]
    omega = [float(scaled(kind, instance.repeat_count).min()) for kind in kinds]
    held = [float(kind.memory.min()) for kind in kinds]
    return np.column_stack([omega, held])


def held_behind(
    counted: Sequence[NDArray[Any]],
) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """Return the least and the most that the ranks behind each one hold, by rank [columns]."""
    least = most = np.zeros(counted[0].shape[1], dtype=counted[0].dtype)
    found = []
    for own in reversed(counted):
        found.append((least, most))
        if len(own):
            least, most = least + own.min(axis=0), most + own.max(axis=0)
    lower, upper = zip(*reversed(found), strict=True)
    return list(lower), list(upper)


def moves_along_the_chain(
    instance: Instance, cuts: Integers, loads: Sequence[Sequence[Load]]
) -> list[Moves]:
    """Return every rank's moves between the places of its cuts, `cuts` [2, stages + 1].

    Where cuts differ by place loads have their edges.
    """
    weights, first, last = _chain_codes(instance)
    free = list(instance.free_kinds)
    prefix = instance.prefix_counts[:, free] @ weights[: len(free)]
    states = np.zeros(1, dtype=np.int64)
    found = []
    for rank, own in enumerate(loads):
        ends = np.arange(int(cuts[0, rank + 1]), int(cuts[1, rank + 1]) + 1)
        codes = np.array(own, dtype=np.int64).reshape(len(own), len(weights)) @ weights
        held = (prefix + last)[ends][None, :] - (prefix - first)[states][:, None]
        place, is_held = _places_of(held, codes)
        start, end = np.nonzero(is_held & (ends[None, :] > states[:, None]))
        moves, states = numbered(start, ends[end], place[start, end], max(len(own), 1))
        found.append(moves)
    return ended(found, np.flatnonzero(states == instance.block_count))


def _chain_codes(instance: Instance) -> tuple[Integers, Integers, Integers]:
    """Return the weights of a load's numbers, and what edges add where a rank begins and ends."""
    places = np.arange(instance.block_count + 1)
    if instance.extras is None:
        return load_weights(instance), np.zeros_like(places), np.zeros_like(places)
    weights = load_weights(instance, edges=instance.extras.pace.shape[1])
    edges = edges_at(instance, places)
    return weights, weights[-2] * edges, weights[-1] * edges


def _places_of(codes: Integers, some: Integers) -> tuple[Integers, Booleans]:
    """Return the place of coded loads among some, of any shape, and whether they are there."""
    if not len(some):
        return np.zeros_like(codes), np.zeros(codes.shape, dtype=bool)
    order = np.argsort(some, kind="stable")
    place = np.minimum(np.searchsorted(some[order], codes), len(some) - 1)
    return order[place], some[order][place] == codes


def ended(moves: list[Moves], last: Integers) -> list[Moves]:
    """Return the moves with the last rank's to one of its states only, which becomes state 0."""
    inside = _are_among(moves[-1].after, last)
    final = moves[-1]
    moves[-1] = Moves(
        before=final.before[inside],
        after=np.zeros(int(inside.sum()), dtype=np.int64),
        load=final.load[inside],
    )
    return moves


Excess = Callable[[int, Integers], Floats]
"""Says of a rank what ways to hold its load exceed, given layers [ways, parts, free kinds]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Transitions:
    """Ways on from states: where from and under which name to, [ways], and `lengths` [ways, parts].

    `load` is the place of what the rank holds among its loads.
    """

    before: Integers
    name: Integers
    load: Integers
    lengths: Integers


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
    base, free = instance.block_count + 1, len(instance.free_kinds)
    weights = base ** np.arange(free, dtype=np.int64)  # what they overflow in is refused below
    forward = reading_of(instance, longest, weights)
    readings = (forward,) * parts
    if is_folded:
        readings = (forward, reading_of(instance, longest, weights, is_backwards=True))
    classes = max(len(reading.codes) for reading in readings)
    if classes ** (2 * parts) * base**free > np.iinfo(np.int64).max:
        return None
    held = [np.array(own, dtype=np.int64).reshape(len(own), free) for own in loads]
    measures = np.column_stack([np.eye(free), least_costs(instance)])
    return Walk(
        instance=instance,
        windows=windows,
        loads=held,
        weights=weights,
        measures=measures,
        behind=tuple(zip(*held_behind([own @ measures for own in held]), strict=True)),
        readings=readings,
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

    `loads` are by rank [loads, free kinds], coded with `weights` (blocks + 1)^k: classes stand for
    several places, and may be read on beyond the layers of a kind. What ranks hold is measured in
    several ways, `measures` [free kinds, ways]: layers of each kind, their least omega and their
    least bytes; `behind` is the least and the most that the ranks behind each one hold, [ways].
    """

    instance: Instance
    windows: Windows
    loads: Sequence[Integers]
    weights: Integers
    measures: Floats
    behind: Sequence[tuple[Floats, Floats]]
    readings: tuple[Reading, ...]
    classes: int
    is_folded: bool

    def moves(self) -> list[Moves] | None:
        """Return every rank's moves, None where they are too many."""
        states = self._first()
        found: list[Moves] = []
        last = self.instance.stage_count - 1
        if states is None:
            return None
        for rank in range(last + 1):
            if rank == last and self.is_folded:
                found.append(self._numbered(self._remainder(states, rank), rank)[0])
                break
            ways = self._ways(states, rank, is_last=rank == last)
            if ways is None:
                return None
            if not rank:
                ways = replace(ways, before=np.zeros_like(ways.before))
            moves, names = self._numbered(ways, rank)
            found.append(moves)
            states = self._decoded(names)
        return found

    def _numbered(self, ways: _Transitions, rank: int) -> tuple[Moves, Integers]:
        """Return ways as moves, and the names of the states reached."""
        return numbered(ways.before, ways.name, ways.load, max(len(self.loads[rank]), 1))

    def lengths(self, excess: Excess | None = None) -> Integers | None:
        """Return the lengths of the ranks' parts on one way, [stages, parts], None without any.

        There is one load a rank. With `excess`, the way is one on which the largest of the ranks'
        is least.

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
            states = self._decoded(names)
        at, found = 0, []
        if self.is_folded:
            ends = self._remainder(states, last)
            if not len(ends.before):
                return None
            at = int(ends.before[worst[ends.before].argmin()])
            left = self.instance.block_count - int(states.blocks[at])
            found.append(np.array([left // 2, left - left // 2]))
        return _traced(trail, at, found)

    def _counts(self, states: _States, ways: _Transitions) -> Integers:
        """Return the layers that each part of a rank holds, [ways, parts, free kinds]."""
        parts = [
            reading.codes[states.places[ways.before, part], ways.lengths[:, part]]
            for part, reading in enumerate(self.readings)
        ]
        return self._layers(np.stack(parts, axis=1))

    def _layers(self, codes: Integers) -> Integers:
        """Return the layers of each kind that codes stand for, [..., free kinds]."""
        return np.asarray(codes[..., None] // self.weights % (self.instance.block_count + 1))

    def _total(self) -> int:
        """Return the code of the whole chain."""
        counts = [self.instance.kinds[k].count for k in self.instance.free_kinds]
        return int(np.array(counts) @ self.weights)

    def _first(self) -> _States | None:
        """Return the states before the first rank, one for each guess; None if there are many."""
        parts = len(self.readings)
        free = 0 if self.is_folded else parts - 1
        known = [np.flatnonzero(self._ends(part, -1)) for part in range(1, free + 1)]
        count = prod(map(len, known))
        if count * self._length_count(0) > WALK_CELLS:
            return None
        guesses = np.array(list(product(*known)), dtype=np.int64).reshape(count, free)
        places = np.zeros((len(guesses), parts), dtype=np.int64)
        if free:
            places[:, 1:] = guesses
        nothing = np.zeros(len(guesses), dtype=np.int64)
        return _States(held=nothing, blocks=nothing, places=places, guesses=guesses)

    def _ways(self, states: _States, rank: int, *, is_last: bool) -> _Transitions | None:
        """Return every way on from the states, None where that is too much."""
        if self._length_count(rank) * len(states.held) > WALK_CELLS:
            return None
        lengths = self._lengths(rank)
        code = self._codes(states.places, lengths)
        load, inside = self._load_of(code, rank)
        if is_last:
            inside &= states.held[:, None] + code == self._total()
        start, way = np.nonzero(inside)
        held, load = states.held[start] + code[start, way], load[start, way]
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
        kept[kept] = self._leaves_what_fits(held[kept], rank)
        start, way, held, load = start[kept], way[kept], held[kept], load[kept]
        ends = np.stack(places, axis=1)[kept]
        if is_last:
            name = np.zeros(len(start), dtype=np.int64)
        else:
            guesses = list(states.guesses[start].T)
            name = self._encoded(held, [*ends.T, *guesses])
        return _Transitions(before=start, name=name, load=load, lengths=lengths[way])

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
        left = np.array(self._totals(rank), dtype=np.int64)
        lengths = np.zeros((len(left), 0), dtype=np.int64)
        for behind in range(len(self.readings) - 1, 0, -1):
            most = left - behind
            way = np.arange(len(left)).repeat(most)
            own = np.arange(1, len(way) + 1) - (most.cumsum() - most).repeat(most)
            lengths, left = np.column_stack([lengths[way], own]), left[way] - own
        return np.column_stack([lengths, left])

    def _totals(self, rank: int) -> range:
        """Return how many blocks a rank may hold."""
        sizes = self.loads[rank].sum(axis=1)
        if not len(sizes):
            return range(0)
        least = max(int(self.windows.least[rank]), len(self.readings), int(sizes.min()))
        return range(least, min(int(self.windows.most[rank]), int(sizes.max())) + 1)

    def _load_of(self, code: Integers, rank: int) -> tuple[Integers, Booleans]:
        """Return the place of coded loads among the rank's, and whether they are there."""
        return _places_of(code, self.loads[rank] @ self.weights)

    def _leaves_enough(self, blocks: Integers, rank: int) -> np.ndarray:
        left, behind = self.instance.block_count - blocks, slice(rank + 1, None)
        least, most = self.windows.least[behind].sum(), self.windows.most[behind].sum()
        return np.asarray((left >= least) & (left <= most))

    def _leaves_what_fits(self, held: Integers, rank: int) -> Booleans:
        """Return whether the ranks behind may hold what coded loads leave, by every measure."""
        counts = np.array([self.instance.kinds[k].count for k in self.instance.free_kinds])
        codes, places = different(held)
        left = counts - self._layers(codes)
        amounts, (least, most) = left @ self.measures, self.behind[rank]
        room = ROUNDING * np.abs(counts @ self.measures)
        fits = (amounts >= least - room) & (amounts <= most + room)
        return np.asarray(np.asarray(fits.all(axis=1))[places])

    def _ends(self, part: int, rank: int) -> Booleans:
        """Return in which classes a part of a rank may end, [classes]; of rank -1, where it begins.

        In a V the second part is read from the end of the chain.
        """
        stages = self.instance.stage_count
        earliest, latest = everywhere(self.instance)
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

    def _encoded(self, held: Integers, classes: Sequence[Integers]) -> Integers:
        """Return one number for what is held and the classes of a state."""
        name = held
        for one in classes:
            name = name * self.classes + one
        return name

    def _decoded(self, names: Integers) -> _States:
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
        blocks = self._layers(rest).sum(axis=1)
        return _States(held=rest, blocks=blocks, places=places, guesses=guesses)

    def _remainder(self, states: _States, rank: int) -> _Transitions:
        """Return the ways of the last rank of a V: it holds what is left."""
        load, inside = self._load_of(self._total() - states.held, rank)
        start = np.flatnonzero(inside)
        return _Transitions(
            before=start,
            name=np.zeros_like(start),
            load=load[start],
            lengths=np.zeros((len(start), len(self.readings)), dtype=np.int64),
        )


def _traced(trail: Sequence[tuple[Integers, Integers]], at: int, found: list[Integers]) -> Integers:
    """Return the lengths on the way back from a state, before those `found` behind it."""
    for before, lengths in reversed(trail):
        found.append(lengths[at])
        at = int(before[at])
    return np.stack(found[::-1])


def moves_by_parts(
    instance: Instance, windows: Windows, loads: Sequence[Sequence[Load]]
) -> list[Moves] | None:
    """Return the moves of ranks of several parts; None for too many, or in no known order.

    The first state is 0, and so is the last rank's.
    """
    walk = walk_of(instance, windows, loads)
    return None if walk is None else walk.moves()


def cuts_by_parts(
    instance: Instance, windows: Windows, loads: Sequence[Load], *, excess: Excess | None = None
) -> tuple[int, ...] | None:
    """Return cuts after which every rank holds its one load; None where there are none.

    With `excess`, cuts are those at which the largest of the ranks' is least.

    Raises:
        TooManyError: if there are too many ways to look at, or ranks are in no known order, or the
            way that was found has cuts where there may be none.
    """
    walk = walk_of(instance, windows, [[load] for load in loads])
    if walk is None:
        raise TooManyError
    lengths = walk.lengths(excess)
    if lengths is None:
        return None
    parts = [lengths[:, 0], lengths[::-1, 1]] if walk.is_folded else list(lengths.T)
    cuts = np.concatenate([[0], np.cumsum(np.concatenate(parts))])
    earliest, latest = everywhere(instance)
    if not ((cuts >= earliest) & (cuts <= latest)).all():
        raise TooManyError
    return tuple(cuts.tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMoves(Moves):
    """Moves of one rank sorted by the state reached, whose first moves are at `starts` [states]."""

    starts: Integers


def rank_moves_of(
    instance: Instance,
    windows: Windows,
    loads: Sequence[Sequence[Load]],
    *,
    sums_most: int,
) -> list[RankMoves] | None:
    """Return the moves of all ranks between states that lie on a whole way, None without any.

    The last rank reaches one state. Where the order of the chain has to be left aside, there may be
    `sums_most` moves between sums of loads.

    Raises:
        TooManyError: if there are too many.
    """
    return rank_moves_along(_moves(instance, windows, loads, sums_most))


def rank_moves_along(moves: Sequence[Moves]) -> list[RankMoves] | None:
    """Return those of all ranks' moves that are on a whole way, sorted; None without any."""
    kept: list[Moves] = []
    alive = np.zeros(1, dtype=np.int64)
    for own in reversed(moves):
        place = np.full(int(max(own.after.max(initial=0), alive.max(initial=0))) + 1, -1)
        place[alive] = np.arange(len(alive))
        after = place[own.after]
        inside = after >= 0
        alive, before = different(own.before[inside])
        if not len(before):
            return None
        kept.append(Moves(before=before, after=after[inside], load=own.load[inside]))
    return [_rank_moves(own) for own in reversed(kept)]


def _moves(
    instance: Instance, windows: Windows, loads: Sequence[Sequence[Load]], sums_most: int
) -> list[Moves]:
    """Return every rank's moves, in the order of the chain where that can be kept."""
    if windows.cuts is not None:
        return moves_along_the_chain(instance, windows.cuts, loads)
    if instance.is_uniform:
        return moves_by_sums(instance, loads)
    by_parts = moves_by_parts(instance, windows, loads)
    if by_parts is not None:
        return by_parts
    try:
        return moves_by_segments(instance, loads, most=sums_most)
    except TooManyError:  # several guesses together have more
        return moves_by_sums(instance, loads, most=sums_most)


def _rank_moves(moves: Moves) -> RankMoves:
    """Return moves by the state that they lead to, and in their order otherwise."""
    few = moves.after.max(initial=0) <= np.iinfo(np.uint16).max
    key = moves.after.astype(np.uint16) if few else moves.after  # few are sorted digit by digit
    order = np.argsort(key, kind="stable")
    after = moves.after[order]
    return RankMoves(
        before=moves.before[order],
        after=after,
        load=moves.load[order],
        starts=np.flatnonzero(np.diff(after, prepend=-1)),
    )


def least_sums(rank_moves: Sequence[RankMoves], tables: Sequence[Floats]) -> Floats:
    """Return the least sum over ranks of tables [loads, columns], for every column.

    So many columns at once that arrays of [transitions, columns] stay in the processor's cache.
    """
    columns, longest = tables[0].shape[1], max(len(moves.load) for moves in rank_moves)
    width = max(CELLS_AT_ONCE // longest, 1)
    parts = [
        _least_sums(rank_moves, [table[:, first : first + width] for table in tables])
        for first in range(0, max(columns, 1), width)
    ]
    return np.concatenate(parts)


def _least_sums(rank_moves: Sequence[RankMoves], tables: Sequence[Floats]) -> Floats:
    reached = np.zeros((1, tables[0].shape[1]))
    for moves, table in zip(rank_moves, tables, strict=True):
        reached = np.minimum.reduceat(
            reached[moves.before] + table[moves.load], moves.starts, axis=0
        )
    return np.asarray(reached[0])


def least_maximum(rank_moves: Sequence[RankMoves], tables: Sequence[Floats]) -> float:
    """Return the least maximum over ranks of tables [loads], inf where no way has finite ones."""
    reached = np.full(1, -np.inf)
    for moves, table in zip(rank_moves, tables, strict=True):
        most = np.maximum(reached[moves.before], table[moves.load])
        reached = np.minimum.reduceat(most, moves.starts)
    return float(reached[0])


def best_loads(
    rank_moves: Sequence[RankMoves], tables: Sequence[Floats], *, put_together: np.ufunc = np.add
) -> tuple[int, ...]:
    """Return the place of every rank's load on a way with the least sum; tables are [loads].

    In place of sums, what is not negative may be `put_together` as its maximum.
    """
    trail = []
    reached = np.zeros(1)
    for moves, table in zip(rank_moves, tables, strict=True):
        sums = put_together(reached[moves.before], table[moves.load])
        reached = np.minimum.reduceat(sums, moves.starts)
        trail.append(sums)
    state, places = 0, []
    for moves, sums in zip(reversed(rank_moves), reversed(trail), strict=True):
        own = np.flatnonzero(moves.after == state)
        best = int(own[sums[own].argmin()])
        places.append(int(moves.load[best]))
        state = int(moves.before[best])
    return tuple(reversed(places))


def sums_through(
    rank_moves: Sequence[RankMoves], tables: Sequence[Floats]
) -> tuple[float, list[Floats]]:
    """Return the least sum over ranks of tables [loads], and the least with each load of a rank.

    The latter are by rank [loads]; inf where no way has the load.
    """
    before = [np.zeros(1)]
    for moves, table in zip(rank_moves, tables, strict=True):
        sums = before[-1][moves.before] + table[moves.load]
        before.append(np.minimum.reduceat(sums, moves.starts))
    behind = np.zeros(1)
    through: list[Floats] = []
    for moves, table, reached in zip(
        reversed(rank_moves), reversed(tables), reversed(before[:-1]), strict=True
    ):
        left = table[moves.load] + behind[moves.after]
        least = np.full(len(table), np.inf)
        np.minimum.at(least, moves.load, reached[moves.before] + left)
        through.append(least)
        behind = np.full(len(reached), np.inf)
        np.minimum.at(behind, moves.before, left)
    return float(before[-1][0]), through[::-1]


def cuts_with_loads(
    instance: Instance, loads: Sequence[Load]
) -> tuple[tuple[int, ...] | None, bool]:
    """Return cuts after which rank r holds `loads[r]` of the free kinds, None if none was found.

    With them comes whether that is certain. Loads may come with their edges.
    """
    if instance.has_several_parts:
        try:
            return cuts_by_parts(instance, everything(instance), loads), True
        except TooManyError:
            return _cuts_tried(instance, loads), False
    held = [list(load[: len(instance.free_kinds)]) for load in loads]
    cuts = even_cuts(instance, list(map(sum, held)))
    is_cut = cuts == tuple(sorted(set(cuts))) and load_of_cuts(instance, cuts) == held
    return (cuts if is_cut else None), True


def _cuts_tried(instance: Instance, loads: Sequence[Load]) -> tuple[int, ...] | None:
    """Return cuts found part by part, those first that leave a rank about an even share."""
    prefix, holders = instance.prefix_counts[:, list(instance.free_kinds)], instance.holders
    dead: set[tuple[int, ...]] = set()

    def found(cuts: tuple[int, ...], left: Integers) -> tuple[int, ...] | None:
        stage, start, key = len(cuts) - 1, cuts[-1], (len(cuts), cuts[-1], *left.ravel().tolist())
        if stage == len(holders):
            return cuts
        if key in dead or len(dead) >= CUTS_TRIED:
            return None
        rank, parts = holders[stage], holders[stage:].count(holders[stage])
        blocks = min(int(left[rank].sum()), instance.block_count - start)
        longest = blocks - parts + 1
        for length in sorted(range(1, longest + 1), key=lambda n: abs(n - blocks / parts)):
            rest = left.copy()
            rest[rank] -= prefix[start + length] - prefix[start]
            if (rest[rank] < 0).any() or (parts == 1 and rest[rank].any()):
                continue
            cut = found((*cuts, start + length), rest)
            if cut is not None:
                return cut
        dead.add(key)
        return None

    return found((0,), np.array(loads))


@dataclass(slots=True)
class Cutter:
    """Cuts of one instance after which ranks hold given loads, with what was asked before."""

    instance: Instance
    _known: dict[tuple[Load, ...], tuple[tuple[int, ...] | None, bool]] = field(
        default_factory=dict
    )

    def cuts(self, loads: tuple[Load, ...]) -> tuple[int, ...] | None:
        """Return cuts as `cuts_with_loads` does."""
        return self._found(loads)[0]

    def is_never(self, loads: tuple[Load, ...]) -> bool:
        """Return whether it is known that no cuts leave these loads to the ranks.

        Where each holds one part, loads that go together always have cuts.
        """
        return self.instance.has_several_parts and self._found(loads) == (None, True)

    def _found(self, loads: tuple[Load, ...]) -> tuple[tuple[int, ...] | None, bool]:
        if loads not in self._known:
            self._known[loads] = cuts_with_loads(self.instance, loads)
        return self._known[loads]
