"""`python -m benchmarks.leave_out FILE`: how right steps are on sources that chose no rate.

The rate of kernels inside a step is a number of each stack, on some devices one of its own, and was
chosen on published runs. Here every family of runs is left out once: the rate is chosen anew on the
other families of its device and stack, each family counting alike, as the one with the least mean
error; where there is no other, the shipped one stands, which these runs then did not choose. Steps
are sums of parts taken at the shipped rates (`planner.calibration.parts`).

With `--together` devices choose it together where the stack has one number for them, which is what
was chosen: Megatron's is one for all devices, torch's one for A100 and one for H100 and newer.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner.calibration.parts import COUNT, Parts, parts_of
from planner.calibration.row import Row, sorted_rows
from planner.hardware import device_profile, stack_profile
from planner.hardware_profiles import in_situ_efficiency
from planner.importers.measured_runs import read_measured_runs
from planner.schema.job import Stack
from planner.validation.comparison import compare
from planner.validation.subsets import SUBSETS

Floats = NDArray[np.float64]

_RATE = 0  # of all kernels: attention and products in 8 bits go with it
_GRID = np.linspace(-0.3, 0.3, 61)  # logarithms of factors on the time of kernels
_SHIPPED = 30  # a factor of 1


def errors_of(rows: Sequence[Row]) -> Iterator[tuple[Row, float, float]]:
    """Yield rows of one device and stack with their errors: shipped, and their family left out."""
    yield from _left_out(rows, _by_factor(rows))


def errors_together(pairs: Iterable[Sequence[Row]]) -> Iterator[tuple[Row, float, float]]:
    """Yield rows as `errors_of` does; devices for which a stack has one number choose together."""
    together: dict[tuple[Stack, float], list[Sequence[Row]]] = defaultdict(list)
    for rows in pairs:
        device, stack = rows[0].pair
        rate = in_situ_efficiency(device_profile(device), stack_profile(stack))
        together[stack, rate].append(rows)
    for parts in together.values():
        errors = np.concatenate([_by_factor(rows) for rows in parts], axis=1)
        yield from _left_out([row for rows in parts for row in rows], errors)


def _by_factor(rows: Sequence[Row]) -> Floats:
    """Return the errors of rows of one device and stack at each factor, [factors, rows]."""
    parts = parts_of(rows, np.zeros(COUNT), moved=[_RATE])
    return np.array([_errors(parts, factor) for factor in _GRID])


def _left_out(rows: Sequence[Row], by_factor: Floats) -> Iterator[tuple[Row, float, float]]:
    families = np.array([row.family for row in rows])
    for name in dict.fromkeys(families):
        left = by_factor[_best(np.abs(by_factor), families, name)]
        for place in np.flatnonzero(families == name):
            yield rows[int(place)], float(by_factor[_SHIPPED, place]), float(left[place])


def _best(by_factor: Floats, families: NDArray[np.str_], name: str) -> int:
    """Return the place of the factor with the least error on the other families, 1 without any."""
    others = [other for other in dict.fromkeys(families) if other != name]
    if not others:
        return _SHIPPED
    means = np.mean([by_factor[:, families == other].mean(axis=1) for other in others], axis=0)
    return int(np.argmin(means))


def _errors(parts: Parts, factor: float) -> Floats:
    """Return predicted over measured, less 1, with kernels exp(factor) times as long, [rows]."""
    factors = np.zeros(COUNT)
    factors[_RATE] = factor
    return np.asarray(np.expm1(parts.log_errors(factors)[0]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the errors by subset and by family as markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.leave_out", description=__doc__)
    parser.add_argument("runs", type=Path, help="measured runs, one JSON object a line")
    parser.add_argument("--together", action="store_true", help="devices of one number together")
    options = parser.parse_args(arguments)
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    families: dict[str, list[tuple[float, float]]] = defaultdict(list)
    pairs = sorted_rows(read_measured_runs(options.runs)).rows.values()
    found = errors_together(pairs) if options.together else chain(*map(errors_of, pairs))
    for row, shipped, left in found:
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
