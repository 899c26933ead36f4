"""Cutting: where the chain is cut so that every rank holds a given load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from planner.ilp.chunks import cuts_by_chunks, has_no_way
from planner.ilp.instance import Instance
from planner.ilp.levels import everything
from planner.ilp.loads import Load
from planner.ilp.places import places_of

_TRIES_MOST = 20_000
_TRIES_BEFORE_ALL = 500
_TRIES_OF_PROOF = 4000


def cuts_with_loads(
    instance: Instance, loads: Sequence[Load], *, tries: int = _TRIES_MOST
) -> tuple[int, ...] | None:
    """Return cuts after which rank r holds `loads[r]` of the free kinds, None if none was found.

    Loads may come with their edges (`planner.ilp.edges`), which are then those of the cuts.
    Virtual stages are cut one after another, those first that leave a rank about an even share for
    its others; the last stage of a rank takes what is left of its load. Where that leads nowhere
    soon, all ways are looked at together.
    """
    free = len(instance.free_kinds)
    if not instance.is_in_order and any(load[free:] for load in loads):
        return cuts_by_chunks(instance, everything(instance), loads)
    loads = [load[:free] for load in loads]
    search = _Search(instance, loads, min(tries, _TRIES_BEFORE_ALL))
    if search.place(0):
        return tuple(search.cuts)
    if not (instance.is_in_order or instance.is_uniform):
        cuts = cuts_by_chunks(instance, everything(instance), loads)
        if cuts is not None:
            return cuts
    if tries <= _TRIES_BEFORE_ALL:
        return None
    search = _Search(instance, loads, tries)
    return tuple(search.cuts) if search.place(0) else None


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


def is_never_cut(instance: Instance, loads: Sequence[Load]) -> bool:
    """Return whether it is known that no cuts leave rank r `loads[r]` of the free kinds."""
    loads = [load[: len(instance.free_kinds)] for load in loads]
    search = _Search(instance, loads, _TRIES_OF_PROOF)
    if search.place(0):
        return False
    return search.is_over or has_no_way(instance, loads)


class _Search:
    """Depth-first search over the cuts; what led nowhere is not tried again."""

    def __init__(self, instance: Instance, loads: Sequence[Load], tries: int) -> None:
        free = list(instance.free_kinds)
        self._holders = instance.holders
        self._prefix = [tuple(row) for row in instance.prefix_counts[:, free].tolist()]
        self._left = [list(load) for load in loads]
        self._parts = [instance.holders.count(rank) for rank in range(instance.stage_count)]
        self._places: list[list[int]] = places_of(instance).T.tolist()
        self._dead: set[tuple[object, ...]] = set()
        self._tries = tries
        self.cuts = [0]

    @property
    def is_over(self) -> bool:
        """Return whether there was a try left: if nothing was found, there is nothing."""
        return self._tries > 0

    def place(self, stage: int) -> bool:
        """Cut behind virtual stage `stage` and all that follow; return whether it can be done."""
        if stage == len(self._holders):
            return self.cuts[-1] == len(self._prefix) - 1
        key = (stage, self.cuts[-1], tuple(tuple(left) for left in self._left))
        if key in self._dead or self._tries <= 0:
            return False
        self._tries -= 1
        rank = self._holders[stage]
        earliest, latest = self._places[stage + 1]
        for length in self._lengths(rank):
            if not earliest <= self.cuts[-1] + length <= latest:
                continue
            taken = self._taken(length)
            if taken is None or any(t > a for t, a in zip(taken, self._left[rank], strict=True)):
                continue
            self._move(rank, taken, length, 1)
            if self.place(stage + 1):
                return True
            self._move(rank, taken, length, -1)
        self._dead.add(key)
        return False

    def _lengths(self, rank: int) -> list[int]:
        left, parts = sum(self._left[rank]), self._parts[rank]
        if parts == 1:
            return [left] if left else []
        even = left / parts
        return sorted(range(1, left - parts + 2), key=lambda length: abs(length - even))

    def _taken(self, length: int) -> list[int] | None:
        start, end = self.cuts[-1], self.cuts[-1] + length
        if end >= len(self._prefix):
            return None
        return [b - a for a, b in zip(self._prefix[start], self._prefix[end], strict=True)]

    def _move(self, rank: int, taken: Sequence[int], length: int, sign: int) -> None:
        for place, number in enumerate(taken):
            self._left[rank][place] -= sign * number
        self._parts[rank] -= sign
        if sign > 0:
            self.cuts.append(self.cuts[-1] + length)
        else:
            self.cuts.pop()
