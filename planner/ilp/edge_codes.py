"""Edge codes: what a rank of several parts holds as one number, its load and the edges of these.

Edges are those of `planner.ilp.edges`: 1 + the class of the block before a cut, 0 where there is no
cut or both of its sides are on one rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Integers
from planner.ilp.loads import Load
from planner.ilp.reading import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeCodes:
    """Codes of ranks up to `last`, whose parts are read by `readings`.

    `base` is how many edges there are with that of none, 0 where all cuts cost the same.
    """

    readings: Sequence[Reading]
    last: int
    is_folded: bool
    base: int

    @property
    def is_edged(self) -> bool:
        """Return whether cuts differ by place."""
        return self.base > 0

    def span(self) -> int:
        """Return how many codes a load may have."""
        return int(self.base ** (2 * len(self.readings))) if self.is_edged else 1

    def split(self, keys: Integers) -> list[tuple[int, Load]]:
        """Return the place of a load and its edges, for every key."""
        if not self.is_edged:
            return [(place, ()) for place in keys.tolist()]
        powers = self.base ** np.arange(2 * len(self.readings), dtype=np.int64)
        edges = (keys % self.span())[:, None] // powers % self.base
        return [
            (place, tuple(own))
            for place, own in zip((keys // self.span()).tolist(), edges.tolist(), strict=True)
        ]

    def key_of(self, edges: Load) -> int:
        """Return the key of a rank's only load with its edges."""
        return sum(edge * self.base**place for place, edge in enumerate(edges))

    def keys(self, rank: int, load: Integers, starts: Integers, ends: Integers) -> Integers:
        """Return the keys of loads by their places, with the edges of the parts, [ways].

        `starts` and `ends` are the classes of where parts begin and end in their reading,
        [ways, parts].
        """
        code = load * self.span()
        if not self.is_edged:
            return code
        for part, reading in enumerate(self.readings):
            first, second = self._ends(
                rank, part, reading.edges[starts[:, part]], reading.edges[ends[:, part]]
            )
            code = code + self.base ** (2 * part) * (first + self.base * second)
        return code

    def _ends(
        self, rank: int, part: int, start: Integers, end: Integers
    ) -> tuple[Integers, Integers]:
        """Return the edges where a part begins and ends along the chain.

        In a V the second part is read backwards, and the last rank's two are one.
        """
        if self.is_folded and part:
            return end * (rank < self.last), start * (rank > 0)
        if self.is_folded:
            return start * (rank > 0), end * (rank < self.last)
        is_last = rank == self.last and part == len(self.readings) - 1
        return start * (rank > 0 or part > 0), end * (not is_last)
