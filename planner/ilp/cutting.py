"""Cutting: where the chain is cut so that every rank holds a given load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from planner.ilp.chunks import cuts_by_chunks
from planner.ilp.instance import Instance
from planner.ilp.levels import everything
from planner.ilp.loads import Load
from planner.ilp.patterns import TooManyError
from planner.ilp.places import places_of

_TRIES_MOST = 20_000
_TRIES_BEFORE_ALL = 500
_TRIES_OF_PROOF = 4000

_Cuts = tuple[int, ...]


def cuts_with_loads(
    instance: Instance, loads: Sequence[Load], *, tries: int = _TRIES_MOST
) -> _Cuts | None:
    """Return cuts after which rank r holds `loads[r]` of the free kinds, None if none was found.

    Loads may come with their edges (`planner.ilp.edges`), which are then those of the cuts.
    Virtual stages are cut one after another, those first that leave a rank about an even share for
    its others; the last stage of a rank takes what is left of its load. Where that leads nowhere
    soon, all ways are looked at together.
    """
    free = len(instance.free_kinds)
    if not instance.is_in_order and any(load[free:] for load in loads):
        return _of_all_ways(instance, loads)[0]
    return _looked_for(instance, [load[:free] for load in loads], tries)[0]


def is_never_cut(instance: Instance, loads: Sequence[Load]) -> bool:
    """Return whether it is known that no cuts leave rank r `loads[r]` of the free kinds."""
    loads = [load[: len(instance.free_kinds)] for load in loads]
    cuts, is_known = _looked_for(instance, loads, _TRIES_OF_PROOF)
    return cuts is None and is_known


def _looked_for(instance: Instance, loads: Sequence[Load], tries: int) -> tuple[_Cuts | None, bool]:
    """Return cuts that leave ranks their loads, None if none was found, and if that is certain."""
    is_simple = instance.is_in_order or instance.is_uniform
    search = _Search(instance, loads, tries if is_simple else min(tries, _TRIES_BEFORE_ALL))
    if search.place(0):
        return tuple(search.cuts), True
    if search.is_over or is_simple:
        return None, search.is_over
    cuts, is_known = _of_all_ways(instance, loads)
    if is_known or tries <= _TRIES_BEFORE_ALL:
        return cuts, is_known
    search = _Search(instance, loads, tries)
    return (tuple(search.cuts), True) if search.place(0) else (None, search.is_over)


def _of_all_ways(instance: Instance, loads: Sequence[Load]) -> tuple[_Cuts | None, bool]:
    """Return the same by all ways together."""
    try:
        return cuts_by_chunks(instance, everything(instance), loads), True
    except TooManyError:
        return None, False


@dataclass(slots=True)
class Cutter:
    """Cuts of one instance after which ranks hold given loads, with what was asked before."""

    instance: Instance
    _unfound: set[tuple[tuple[Load, ...], int]] = field(default_factory=set)
    _never: dict[tuple[Load, ...], bool] = field(default_factory=dict)

    def cuts(self, loads: tuple[Load, ...], *, tries: int) -> tuple[int, ...] | None:
        """Return cuts as `cuts_with_loads` does, at once where none were found before."""
        if (loads, tries) in self._unfound:
            return None
        found = cuts_with_loads(self.instance, loads, tries=tries)
        if found is None:
            self._unfound.add((loads, tries))
        return found

    def is_never(self, loads: tuple[Load, ...]) -> bool:
        """Return whether it is known that no cuts leave these loads to the ranks.

        Where each holds one part, loads that go together always have cuts.
        """
        if not self.instance.has_several_parts:
            return False
        if loads not in self._never:
            self._never[loads] = is_never_cut(self.instance, loads)
        return self._never[loads]


class _Search:
    """Depth-first search over the cuts; what led nowhere is not tried again.

    Layers by kind are one number with a field of bits a kind, the highest of which stays free: it
    tells whether what is taken is more than what is left.
    """

    def __init__(self, instance: Instance, loads: Sequence[Load], tries: int) -> None:
        free = list(instance.free_kinds)
        width = instance.block_count.bit_length() + 1
        places = [width * place for place in range(len(free))]
        self._borrow = sum(1 << place + width - 1 for place in places)
        counts = instance.prefix_counts[:, free].tolist()
        self._prefix = [_packed(row, places) for row in counts]
        self._holders = instance.holders
        self._left = [_packed(load, places) for load in loads]
        self._blocks = [sum(load) for load in loads]
        self._parts = [instance.holders.count(rank) for rank in range(instance.stage_count)]
        self._places: list[list[int]] = places_of(instance).T.tolist()
        self._ordered: dict[tuple[int, int], list[int]] = {}
        self._dead: set[tuple[object, ...]] = set()
        self._tries = tries
        self.cuts = [0]

    @property
    def is_over(self) -> bool:
        """Return whether there was a try left: if nothing was found, there is nothing."""
        return self._tries > 0

    def place(self, stage: int) -> bool:
        """Cut behind virtual stage `stage` and all that follow; return whether it can be done."""
        start = self.cuts[-1]
        if stage == len(self._holders):
            return start == len(self._prefix) - 1
        key = (stage, start, *self._left)
        if key in self._dead or self._tries <= 0:
            return False
        self._tries -= 1
        rank = self._holders[stage]
        left, borrow, passed = self._left[rank], self._borrow, self._prefix[start]
        earliest, latest = self._places[stage + 1]
        for length in self._lengths(rank):
            if not earliest <= start + length <= latest:
                continue
            rest = (left | borrow) - (self._prefix[start + length] - passed)
            if rest & borrow != borrow:
                continue
            self._move(rank, length, 1, rest ^ borrow)
            if self.place(stage + 1):
                return True
            self._move(rank, length, -1, left)
        self._dead.add(key)
        return False

    def _lengths(self, rank: int) -> list[int]:
        """Return how long the next part of a rank may be, an even share first."""
        left, parts = self._blocks[rank], self._parts[rank]
        known = self._ordered.get((left, parts))
        if known is None:
            known = _by_evenness(left, parts)
            self._ordered[left, parts] = known
        return known

    def _move(self, rank: int, length: int, sign: int, left: int) -> None:
        self._left[rank] = left
        self._blocks[rank] -= sign * length
        self._parts[rank] -= sign
        if sign > 0:
            self.cuts.append(self.cuts[-1] + length)
        else:
            self.cuts.pop()


def _packed(counts: Sequence[int], places: Sequence[int]) -> int:
    """Return counts as fields of bits that begin at places."""
    return sum(count << place for count, place in zip(counts, places, strict=True))


def _by_evenness(left: int, parts: int) -> list[int]:
    """Return how long one of some parts of so many blocks may be, near an even share first."""
    if parts == 1:
        return [left] if left else []
    even = left / parts
    return sorted(range(1, left - parts + 2), key=lambda length: abs(length - even))
