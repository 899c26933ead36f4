"""Rank: the choices of one rank that a plan below a cutoff may have, and what it may hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.edges import held_edges, with_edges
from planner.ilp.instance import Instance
from planner.ilp.loads import Load, with_pinned
from planner.ilp.outline import Outline
from planner.ilp.packed import Packed
from planner.ilp.patterns import Columns, rank_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a rank adds to a step: fill, pace and end, in seconds."""

    fill: float
    pace: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What no rank may exceed: t_r, u_r and rho t_r + u_r, in seconds."""

    pace: float = float("inf")
    end: float = float("inf")
    both: float = float("inf")


@dataclass(frozen=True, kw_only=True)
class Rank:
    """The choices of one rank that a plan below the cutoff may have, and its loads.

    `places` [columns] are those of the choices among all of the instance's side by side, with the
    edges behind them; `held` [loads, kinds] has the pinned layers and the edges too; `own` is what
    the rank costs by itself. `packed` is what is known of the packings of loads, by what they hold.
    """

    columns: Columns
    places: Integers
    held: Integers
    own: Parts
    repeats: float
    capacity: float
    host: float
    packed: dict[tuple[int, ...], Packed] = field(default_factory=dict, compare=False)
    known_outline: Outline | None = field(default=None, compare=False)

    @cached_property
    def outline(self) -> Outline:
        """Return what its choices have in common, which ranks with other loads share."""
        return self.known_outline or Outline.of(self.columns, self.repeats)

    def with_loads(self, places: Integers) -> Rank:
        """Return the rank with some of its loads alone."""
        return replace(self, held=self.held[places], known_outline=self.outline)

    def parts(self, counts: Floats) -> Parts:
        """Return what layers by column add up to, with the rank's own."""
        columns, own = self.columns, self.own
        return Parts(
            fill=own.fill + float(counts @ columns.fill),
            pace=own.pace + float(counts @ columns.pace),
            end=own.end + float(counts @ columns.end),
        )


def rank_of(
    instance: Instance, rank: int, *, loads: Sequence[Load], most: Sequence[Integers]
) -> Rank:
    """Return a rank with its loads of the free kinds, with edges where cuts differ by place.

    `most` is by kind [stages, choices].
    """
    own = rank_columns(instance, rank, reduced=[np.zeros(m.shape) for m in most], most=most)
    every, free = with_edges(instance, rank, own), len(instance.free_kinds)
    places = np.flatnonzero(every.most > 0)
    return Rank(
        columns=every.taken(places),
        places=places,
        held=np.array(
            [
                [*with_pinned(instance, rank, load[:free]), *edges]
                for load, edges in zip(loads, held_edges(instance, rank, loads), strict=True)
            ],
            dtype=np.int64,
        ),
        own=Parts(
            fill=float(instance.stage_fill[rank]),
            pace=float(instance.stage_pace[rank]),
            end=float(instance.stage_end[rank]),
        ),
        repeats=instance.repeat_count,
        capacity=float(instance.capacity_bytes[rank] - instance.stage_bytes[rank]),
        host=float(instance.host_capacity_bytes[rank]),
    )
