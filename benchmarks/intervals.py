"""`python -m benchmarks.intervals FILE`: how wide intervals of step time are, and what they hold.

The half width's logarithm is linear in what the job is (see `planner.cost.intervals`). It is the
80 % quantile of log |ln(measured / predicted)|, fitted by iterated least squares on the check
function, with a small ridge on all but the intercept. Predictions are held out: each run's is at
rates that were chosen without its family (`benchmarks.leave_out`). Every family is then left out
of the widths once as well, and those fitted on the others are held against its runs.

Of these widths, what is a run's own and what alike runs share (`planner.cost.learnt`) is told
apart by how errors of one source go together: the likeliest two factors, and those with each source
left out.

Source: Koenker and Bassett 1978, doi:10.2307/1913643.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.leave_out import errors_of
from planner.calibration.report import learnt_run
from planner.calibration.row import sorted_rows
from planner.cost.intervals import (
    EXPONENTS,
    LARGE_WIDTH,
    SHARED_DEVIATION,
    step_traits,
)
from planner.cost.learnt import points_of_runs
from planner.importers.measured_runs import read_measured_runs
from planner.schema.job import LearntRun
from planner.validation.comparison import Comparison, Pair, compare
from planner.validation.measurement import BULK_TIER
from planner.validation.subsets import SUBSETS

Floats = NDArray[np.float64]

_COVERAGE = 0.8
_RIDGE = 0.002
_LEAST_ERROR = 0.01  # nearer than that is as near as can be
_ROUNDS = 300
_VARIANCE_ROUNDS, _SOURCE_RUNS_MOST, _ERROR_MOST = 60, 20, 0.7
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


def likeliest(sources: Iterable[Sequence[LearntRun]]) -> tuple[float, float]:
    """Return the likeliest deviation that runs share, and factor on what is each run's own.

    With the covariance V = t^2 C + n^2 D of a source's errors y, and A = V^-1, variances grow by
    sqrt(y' A C A y / tr A C) a round, and alike for D, until they stay. A source counts as twenty
    runs at most, and an error as 0.7 at most.

    Source: Zhou et al. 2019, doi:10.1080/10618600.2018.1529601 (MM algorithms), section 2.
    """
    parts = [_parts(runs) for runs in sources]
    variances = np.array([0.02, 1.0])
    for _ in range(_VARIANCE_ROUNDS):
        nearer, farther = np.zeros(2), np.zeros(2)
        for errors, kinds in parts:
            inverse = np.linalg.inv(np.tensordot(variances, kinds, axes=1))
            told, weight = inverse @ errors, min(1.0, _SOURCE_RUNS_MOST / len(errors))
            nearer += weight * np.array([told @ kind @ told for kind in kinds])
            farther += weight * np.array([np.sum(inverse * kind) for kind in kinds])
        variances = variances * np.sqrt(nearer / farther)
    shared, own = np.sqrt(variances)
    return float(shared), float(own)


def _parts(runs: Sequence[LearntRun]) -> tuple[Floats, Floats]:
    """Return the errors of runs, [runs], and C and D, [2, runs, runs]."""
    points = points_of_runs(runs)
    errors = np.clip([run.log_error for run in runs], -_ERROR_MOST, _ERROR_MOST)
    own = np.diag([run.own_deviation**2 for run in runs])
    return errors, np.array([points.correlations(points), own])


def _print_shared(path: Path) -> None:
    sources = sources_of(path)
    shared, own = likeliest(sources.values())
    print(f"shared {shared:.3f}, {SHARED_DEVIATION}; each run's own {own:.2f} of what is shipped")
    for name in sources:
        near, apart = likeliest(runs for source, runs in sources.items() if source != name)
        print(f"  without {name}: {near:.3f}, {apart:.2f}")


def sources_of(path: Path) -> dict[str, tuple[LearntRun, ...]]:
    """Return the runs of each source of a file, bulk ones left out, as they can be learnt from."""
    found: dict[str, list[LearntRun]] = {}
    for rows in sorted_rows(read_measured_runs(path)).rows.values():
        for row in rows:
            found.setdefault(row.family, []).append(learnt_run(row))
    return {name: tuple(runs) for name, runs in found.items()}


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
    options = parser.parse_args(arguments)
    _print_shared(options.runs)
    rows = list(rows_of(options.runs))
    _print_weights(fitted(rows))
    _print_coverage(rows, left_out(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
