"""Combinations: rows that are alike in some columns; what depends on these is found once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from planner.cost.configuration import Integers

_KEYS_MOST = 2**62


def combinations(columns: Iterable[tuple[Integers, int]], count: int) -> tuple[Integers, Integers]:
    """Return the first row of each combination of the columns, and whose each of all rows is.

    Columns [rows] are whole numbers, not negative, each with one more than its largest; `count` is
    the number of rows. Shapes are [combinations] and [rows].
    """
    key, span = np.zeros(count, dtype=np.int64), 1
    for codes, size in columns:
        if span * size > _KEYS_MOST:
            _, key = np.unique(key, return_inverse=True)
            span = int(key.max()) + 1
        key, span = key * size + codes, span * size
    _, first, whose = np.unique(key, return_index=True, return_inverse=True)
    return first, whose
