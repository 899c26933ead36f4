"""Master: a small linear program that grows row by row, solved again after each, by HiGHS.

PuLP hands a program over as a whole, which takes longer than to solve one of these.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from planner.cost.configuration import Floats

if TYPE_CHECKING:
    import highspy


@cache
def is_available() -> bool:
    """Return whether HiGHS can be talked to."""
    return find_spec("highspy") is not None


class Master:
    """Maximise gains x with 0 <= x <= most and rows a x <= b; arrays are [columns]."""

    def __init__(self, gains: Floats, *, least: Floats, most: Floats) -> None:
        """Start without any rows; infinite limits are none."""
        self._columns = np.arange(len(gains), dtype=np.int32)
        self._highs = _quiet()
        self._highs.addVars(len(gains), least, most)
        self._highs.changeColsCost(len(gains), self._columns, -gains)

    def require(self, row: Floats, most: float) -> None:
        """Add a row."""
        self._highs.addRow(-np.inf, most, len(row), self._columns, row)

    def best(self) -> tuple[float, Floats] | None:
        """Return the largest value and the columns there, None where there is none."""
        import highspy  # noqa: PLC0415

        self._highs.run()
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        columns = np.array(self._highs.getSolution().col_value)
        return -float(self._highs.getInfo().objective_function_value), columns


def _quiet() -> highspy.Highs:
    import highspy  # noqa: PLC0415

    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    for name, value in (("output_flag", False), ("threads", 1), ("random_seed", 0)):
        highs.setOptionValue(name, value)
    return highs
