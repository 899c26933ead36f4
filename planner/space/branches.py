"""Branches: a growing table of configurations, one decision after the other, as columns.

Each decision multiplies rows by its options. Options depend on few columns, so they are listed once
for each different combination of these and spread over the rows in numpy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Integers
from planner.space.refusals import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What one decision may be: a row of numbers each, and why other options are not there."""

    rows: Sequence[tuple[int, ...]]
    refused: Sequence[Refusal] = ()


def branched(
    columns: Mapping[str, Integers],
    names: Sequence[str],
    *,
    given: Sequence[str],
    options: Callable[..., Options],
    refused: Counter[Refusal],
) -> dict[str, Integers]:
    """Return `columns` with one row for each row and option, and the options as columns `names`.

    `options` gets the values of the columns `given`. Each reason counts once for every row that it
    holds for. Rows stay in order, and options in theirs.
    """
    row_count = len(next(iter(columns.values())))
    different, kinds = _different([columns[name] for name in given])
    listed = [options(*values) for values in different]
    occurrences = np.bincount(kinds, minlength=len(listed))
    for one, count in zip(listed, occurrences, strict=True):
        for reason in one.refused:
            refused[reason] += int(count)
    sizes = np.array([len(one.rows) for one in listed], dtype=np.int64)
    flat = np.array([row for one in listed for row in one.rows], dtype=np.int32)
    flat = flat.reshape(-1, len(names))
    repeats = sizes[kinds]
    source = np.repeat(np.arange(row_count), repeats)
    first_option = np.cumsum(sizes) - sizes
    first_row = np.cumsum(repeats) - repeats
    option = np.arange(len(source)) + np.repeat(first_option[kinds] - first_row, repeats)
    grown = {name: values[source] for name, values in columns.items()}
    return grown | {name: flat[option, place] for place, name in enumerate(names)}


def _different(columns: Sequence[Integers]) -> tuple[list[tuple[int, ...]], Integers]:
    """Return the different rows of `columns`, and which of them each row is."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        code = code * len(values) + place
    _, first, kinds = np.unique(code, return_index=True, return_inverse=True)
    different = [tuple(int(column[row]) for column in columns) for row in first]
    return different, kinds
