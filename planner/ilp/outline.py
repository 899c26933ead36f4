"""Outline: what the choices of a rank have in common whatever they cost and whatever it holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.instance import undominated
from planner.ilp.knapsack import Frame
from planner.ilp.patterns import Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The columns of a rank in the order of their transients, and what limits are about.

    `limited` [3, columns] are pace, end and both, which caps limit besides memory; `least` are the
    least bytes, host bytes, pace, end and both of a layer, each [kinds, thresholds], 0 where a kind
    has no such choice. `corners` are by kind the columns that may be corners of its hull at any
    weights of fill, pace and end, with their bytes. `is_never_negative` says that no choice has a
    fill, a pace or an end below 0.
    """

    frame: Frame
    limited: Floats
    least: tuple[Floats, ...]
    corners: tuple[tuple[Integers, list[float]], ...]
    is_never_negative: bool

    @staticmethod
    def of(columns: Columns, repeats: float) -> Outline:
        """Return the outline of a rank's columns."""
        frame = Frame.of(columns.kind, columns.transient)
        limited = np.stack([columns.pace, columns.end, repeats * columns.pace + columns.end])
        least = [frame.least(each) for each in (columns.memory, columns.host, *limited)]
        return Outline(
            frame=frame,
            limited=limited,
            least=tuple(np.where(np.isfinite(each), each, 0.0) for each in least),
            corners=tuple(_corners(columns, own) for own in frame.members),
            is_never_negative=bool(
                columns.fill.min(initial=0.0) >= 0.0 and limited.min(initial=0.0) >= 0.0
            ),
        )


def _corners(columns: Columns, own: Integers) -> tuple[Integers, list[float]]:
    """Return those columns of a kind that no other equals or beats in cost and memory."""
    measures = np.stack([columns.fill, columns.pace, columns.end, columns.memory])
    kept = own[undominated(measures[:, own])]
    return kept, columns.memory[kept].tolist()
