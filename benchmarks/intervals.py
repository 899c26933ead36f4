"""`python -m benchmarks.intervals FILE`: how wide intervals of step time are, and what they hold.

The half width's logarithm is linear in what the job is (see `planner.cost.intervals`). It is the
80 % quantile of log |ln(measured / predicted)|, fitted by iterated least squares on the check
function, with a small ridge on all but the intercept. Predictions are held out: each run's is at
rates that were chosen without its family (`benchmarks.leave_out`). Every family is then left out
of the widths once as well, and those fitted on the others are held against its runs.

What sources differ by is read from runs that nothing was learnt from (`--unseen FILE...`, a source
a file and program): the least standard deviation, beside the widths above, with which intervals
hold 80 % of them, every source counted alike; first of those whose stack was measured on their
device before, then of the others, for which a further deviation comes to it.

Source: Koenker and Bassett 1978, doi:10.2307/1913643.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.leave_out import errors_of
from planner.calibration.row import sorted_rows
from planner.cost.intervals import (
    EXPONENTS,
    LARGE_WIDTH,
    P90_DEVIATIONS,
    RUNS_DIFFER,
    SOURCE_DEVIATION,
    UNMEASURED_DEVIATION,
    step_traits,
)
from planner.importers.measured_runs import read_measured_runs
from planner.validation import report
from planner.validation.comparison import Comparison, Pair, compare
from planner.validation.measurement import BULK_TIER
from planner.validation.subsets import SUBSETS

Floats = NDArray[np.float64]

_COVERAGE = 0.8
_RIDGE = 0.002
_LEAST_ERROR = 0.01  # nearer than that is as near as can be
_ROUNDS = 300
_SMOOTHING = (0.5, 0.95, 1e-4)  # first, factor a round, least


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A run's traits (intercept, those of its step), how far off it was, and its width."""

    family: str
    subsets: tuple[str, ...]
    traits: tuple[float, ...]
    error: float
    shipped: float


def rows_of(path: Path) -> Iterator[Row]:
    """Yield a row of every run whose step is compared, bulk ones left out."""
    for rows in sorted_rows(read_measured_runs(path)).rows.values():
        for run, _, error in errors_of(rows):
            compared = compare(run.case)
            step = compared.step
            if run.case.run.tier == BULK_TIER or not isinstance(step, Pair):
                continue
            yield Row(
                family=run.family,
                subsets=tuple(name for name, chosen in SUBSETS.items() if chosen(compared)),
                traits=_traits(compared),
                error=abs(math.log1p(error)),
                shipped=math.log(step.p90 / step.predicted),
            )


def _traits(compared: Comparison) -> tuple[float, ...]:
    prediction, case = compared.prediction, compared.case
    host = prediction.breakdown_seconds.host / prediction.step_seconds.p50
    return (1.0, *step_traits(case.workload, case.job, host_ratio=host))


def fitted(rows: Sequence[Row]) -> Floats:
    """Return the weights of traits, [traits]."""
    traits = np.array([row.traits for row in rows])
    errors = np.log(np.maximum([row.error for row in rows], _LEAST_ERROR))
    ridge = np.diag([1e-9, *[_RIDGE] * (traits.shape[1] - 1)])
    weights = np.zeros(traits.shape[1])
    weights[0] = float(np.quantile(errors, _COVERAGE))
    smoothing, factor, least = _SMOOTHING
    for _ in range(_ROUNDS):
        rest = errors - traits @ weights
        sides = np.where(rest > 0.0, _COVERAGE, 1.0 - _COVERAGE)
        trusted = sides / np.maximum(np.abs(rest), smoothing) / len(rows)
        curvature = (traits.T * trusted) @ traits + ridge
        weights = np.linalg.solve(curvature, traits.T @ (trusted * errors))
        smoothing = max(smoothing * factor, least)
    return np.asarray(weights)


def widths(rows: Sequence[Row], weights: Floats) -> Floats:
    """Return the half widths of rows, in logarithms, [rows]."""
    return np.asarray(np.exp(np.array([row.traits for row in rows]) @ weights))


def left_out(rows: Sequence[Row]) -> Floats:
    """Return the half widths of rows, each by a fit without its family, [rows]."""
    found = np.zeros(len(rows))
    families = np.array([row.family for row in rows])
    for name in dict.fromkeys(families):
        own = families == name
        weights = fitted([row for row, is_own in zip(rows, own, strict=True) if not is_own])
        found[own] = widths([row for row, is_own in zip(rows, own, strict=True) if is_own], weights)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenRow:
    """A run that nothing was learnt from: how far off it was, and its width without its source."""

    source: str
    is_measured: bool
    error: float
    width: float


def unseen_rows_of(paths: Sequence[Path]) -> Iterator[UnseenRow]:
    """Yield a row of every run whose step is compared."""
    for path in paths:
        for answer in report.compared(read_measured_runs(path)):
            if not isinstance(answer, Comparison) or not isinstance(answer.step, Pair):
                continue
            causes = {one.cause: one.ratio for one in answer.prediction.interval_causes}
            between = [math.log1p(ratio) for cause, ratio in causes.items() if cause != RUNS_DIFFER]
            whole = math.log(answer.step.p90 / answer.step.predicted)
            yield UnseenRow(
                source=" ".join([path.stem, *(answer.case.run.framework or "").split()[:1]]),
                is_measured=len(between) < 2,
                error=abs(math.log1p(answer.step.error_ratio)),
                width=math.sqrt(max(whole**2 - sum(b**2 for b in between), 0.0)),
            )


def between_deviation(rows: Sequence[UnseenRow]) -> float:
    """Return the least standard deviation between sources that holds 80 %, sources alike."""
    for deviation in np.arange(0.0, 1.0, 0.01):
        held: dict[str, list[bool]] = {}
        for row in rows:
            reach = math.hypot(row.width, P90_DEVIATIONS * deviation)
            held.setdefault(row.source, []).append(row.error <= reach)
        if np.mean([np.mean(own) for own in held.values()]) >= _COVERAGE:
            return float(deviation)
    return math.inf


def _print_between(rows: Sequence[UnseenRow]) -> None:
    seen = between_deviation([row for row in rows if row.is_measured])
    other = between_deviation([row for row in rows if not row.is_measured])
    further = math.sqrt(max(other**2 - seen**2, 0.0))
    print(f"between sources {seen:.2f}, {SOURCE_DEVIATION}")
    print(f"further, where not measured {further:.2f}, {UNMEASURED_DEVIATION}")
    for source in sorted({row.source for row in rows}):
        without = [row for row in rows if row.source != source]
        near = between_deviation([row for row in without if row.is_measured])
        print(f"  between sources without {source}: {near:.2f}")


def _print_weights(weights: Floats) -> None:
    print("fitted here, and shipped:")
    print(f"  width {math.exp(weights[0]):.3f}, {LARGE_WIDTH}")
    names = ("mixture a", "small b", "host c", "adapters d", "fp16 e", "fp8 f")
    for name, value, shipped in zip(names, weights[1:], EXPONENTS, strict=True):
        print(f"  {name} {value:.2f}, {shipped}")


def _print_coverage(rows: Sequence[Row], apart: Floats) -> None:
    errors, shipped = (
        np.array([row.error for row in rows]),
        np.array([row.shipped for row in rows]),
    )
    print(
        f"{'held within the interval':26} {'runs':>5} {'shipped':>8} {'left out':>9} {'width':>6}"
    )
    groups: dict[str, list[int]] = {name: [] for name in SUBSETS}
    for place, row in enumerate(rows):
        for name in (*row.subsets, f"  {row.family}"):
            groups.setdefault(name, []).append(place)
    for name, places in groups.items():
        if places:
            near, far = errors[places] <= shipped[places], errors[places] <= apart[places]
            width = math.expm1(float(np.median(shipped[places])))
            print(f"{name:26} {len(places):5} {near.mean():8.0%} {far.mean():9.0%} {width:6.0%}")
    families = {row.family for row in rows}
    means = [
        np.mean([e <= w for e, w, row in zip(errors, apart, rows, strict=True) if row.family == f])
        for f in families
    ]
    print(f"{'mean over families':26} {len(families):5} {'':8} {np.mean(means):9.0%}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the fit, and what intervals hold by subset and family."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.intervals", description=__doc__)
    parser.add_argument("runs", type=Path, help="measured runs, one JSON object a line")
    parser.add_argument("--unseen", type=Path, nargs="*", default=[], help="sources not seen")
    options = parser.parse_args(arguments)
    if options.unseen:
        _print_between(list(unseen_rows_of(options.unseen)))
    rows = list(rows_of(options.runs))
    _print_weights(fitted(rows))
    _print_coverage(rows, left_out(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
