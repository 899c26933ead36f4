"""`python -m benchmarks.leave_out FILE`: how right steps are on sources that chose no rate.

The rate of kernels inside a step is a number of each stack, on some devices one of its own, and was
chosen on published runs. Here every family of runs is left out once: the rate is chosen anew on the
other families of its device and stack, each family counting alike, as the one with the least mean
error; where there is no other, the shipped one stands, which these runs then did not choose. Steps
are sums of parts taken at the shipped rates (`planner.calibration.parts`).
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner.calibration.parts import COUNT, Parts, parts_of
from planner.calibration.row import Row, sorted_rows
from planner.importers.measured_runs import read_measured_runs
from planner.validation.comparison import compare
from planner.validation.subsets import SUBSETS

Floats = NDArray[np.float64]

_RATE = 0  # of all kernels: attention and products in 8 bits go with it
_GRID = np.arange(-0.3, 0.301, 0.01)  # logarithms of factors on the time of kernels


def errors_of(rows: Sequence[Row]) -> Iterator[tuple[Row, float, float]]:
    """Yield rows of one device and stack with their errors: shipped, and their family left out."""
    parts = parts_of(rows, np.zeros(COUNT), moved=[_RATE])
    shipped = _errors(parts, 0.0)
    families = np.array([row.family for row in rows])
    by_factor = np.array([np.abs(_errors(parts, factor)) for factor in _GRID])
    for name in dict.fromkeys(families):
        left = _errors(parts, _best(by_factor, families, name))
        for place in np.flatnonzero(families == name):
            yield rows[int(place)], float(shipped[place]), float(left[place])


def _best(by_factor: Floats, families: NDArray[np.str_], name: str) -> float:
    """Return the factor with the least error on the other families, 0 without any."""
    others = [other for other in dict.fromkeys(families) if other != name]
    if not others:
        return 0.0
    means = np.mean([by_factor[:, families == other].mean(axis=1) for other in others], axis=0)
    return float(_GRID[int(np.argmin(means))])


def _errors(parts: Parts, factor: float) -> Floats:
    """Return predicted over measured, less 1, with kernels exp(factor) times as long, [rows]."""
    factors = np.zeros(COUNT)
    factors[_RATE] = factor
    return np.asarray(np.expm1(parts.log_errors(factors)[0]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the errors by subset and by family as markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.leave_out", description=__doc__)
    parser.add_argument("runs", type=Path, help="measured runs, one JSON object a line")
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    families: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for rows in sorted_rows(read_measured_runs(parser.parse_args(arguments).runs)).rows.values():
        for row, shipped, left in errors_of(rows):
            compared = compare(row.case)
            families[row.family].append((shipped, left))
            for name, chosen in SUBSETS.items():
                if chosen(compared):
                    groups[name].append((shipped, left))
    print("| step | runs | shipped: MAPE | p90 | family left out: MAPE | p90 | bias |")
    print("|---|---|---|---|---|---|---|")
    for name in SUBSETS:
        if groups[name]:
            _print_row(name, groups[name])
    for name, errors in sorted(families.items()):
        _print_row(name, errors)
    return 0


def _print_row(name: str, errors: Sequence[tuple[float, float]]) -> None:
    both = np.array(errors)
    sizes = np.abs(both)
    shipped, left = (
        f"{sizes[:, place].mean():.1%} | {np.quantile(sizes[:, place], 0.9):.1%}"
        for place in range(2)
    )
    print(f"| {name} | {len(both)} | {shipped} | {left} | {both[:, 1].mean():+.1%} |")


if __name__ == "__main__":
    raise SystemExit(main())
