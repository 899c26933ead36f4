"""Patterns: every way to fill a rank that a plan below the cutoff may have.

Weak duality (`planner.ilp.decomposition`) gives each layer under each choice a reduced cost d >= 0
such that a plan's step is at least a bound plus the sum of its reduced costs, plus what memory it
leaves free at the price of memory. A rank's pattern whose own sum exceeds what the cutoff leaves is
in no plan below it, and few are left once the bound is close: they are enumerated. The technique
is known from vehicle routing (Baldacci, Christofides and Mingozzi 2008,
doi:10.1007/s10107-007-0178-5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.dominance import unbeaten_of
from planner.ilp.instance import Instance


class TooManyError(Exception):
    """More to look at than is worth it, or than the effort allows."""


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
