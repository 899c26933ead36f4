"""Rooms: what ranks in groups hold at the most, for many configurations at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class Rooms:
    """The most `blocks` on a rank of each group, [groups, rows].

    `kinds` [kinds, groups, rows] are the most blocks of each kind on all ranks of a group together,
    inf in rows of which it is not known, None where it is of none.
    """

    blocks: Floats
    kinds: Floats | None = None

    def of_rows(self, rows: Integers) -> Rooms:
        """Return those of some rows."""
        kinds = None if self.kinds is None else self.kinds.take(rows, axis=-1)
        return Rooms(blocks=self.blocks.take(rows, axis=1), kinds=kinds)

    def within(self, other: Rooms) -> Rooms:
        """Return what both leave."""
        kinds = [each for each in (self.kinds, other.kinds) if each is not None]
        return Rooms(
            blocks=np.minimum(self.blocks, other.blocks),
            kinds=np.min(kinds, axis=0) if kinds else None,
        )

    def or_blocks(self, other: Rooms, is_left: Booleans) -> Rooms:
        """Return rooms whose blocks are the other's in rows that are not left."""
        return replace(self, blocks=np.where(is_left, self.blocks, other.blocks))
