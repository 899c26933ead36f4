"""`python -m benchmarks.intervals FILE`: how wide intervals of step time are, and what they hold.

An interval is for a run of a source that nothing was learnt from, so that sources count alike, and
those whose stack no other ran on their chip are told apart: there a width is added (see
`planner.cost.intervals`). What is printed is chosen on all sources, and with each left out; and
what the widths hold of each source, shipped and chosen without it. A chip is one table of peaks.

How much of the rest runs share that are alike (`planner.cost.learnt`) is told by how errors of one
source go together: the likeliest two factors on the deviations that ship.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner.calibration.report import learnt_run
from planner.calibration.row import Row, sorted_rows
from planner.cost.intervals import (
    ADAPTED_WIDTH,
    P90_DEVIATIONS,
    SHARED_RATIO,
    UNLEARNT_WIDTH,
    WIDTH,
)
from planner.cost.learnt import points_of_runs
from planner.hardware import device_profile
from planner.importers.measured_runs import read_measured_runs
from planner.schema.job import LearntRun, Precision, Stack
from planner.validation.comparison import Pair, compare
from planner.validation.subsets import SUBSETS

Floats = NDArray[np.float64]
ChipStack = tuple[tuple[float, ...], Stack]
"""A chip, as its peaks are, and the stack on it."""

_COVERAGE = 0.8
_GRID = np.arange(0.0, 1.0, 0.005)
_VARIANCE_ROUNDS, _SOURCE_RUNS_MOST, _ERROR_MOST = 60, 20, 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A run of a source: how far off it was, in logarithms, and what its width goes by."""

    source: str
    subsets: tuple[str, ...]
    error: float
    shipped: float
    adapted: bool
    pair: ChipStack


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """W, W_a and u."""

    plain: float
    adapted: float
    unlearnt: float

    def of(self, runs: Sequence[Known], learnt: set[ChipStack]) -> Floats:
        """Return the half widths of runs, `learnt` being pairs of chip and stack."""
        own = np.array([self.adapted if run.adapted else self.plain for run in runs])
        more = np.array([0.0 if run.pair in learnt else self.unlearnt for run in runs])
        return np.asarray(np.hypot(own, more))


def pair_of(device: str, stack: Stack) -> ChipStack:
    """Return the chip of a device, and the stack on it."""
    peaks = device_profile(device).peak_tflop_per_second
    return tuple(peaks[precision] for precision in Precision), stack


def known_runs(path: Path) -> list[Known]:
    """Return the runs of a file whose steps are compared, bulk ones left out."""
    return [
        known
        for rows in sorted_rows(read_measured_runs(path)).rows.values()
        for row in rows
        if (known := _known(row)) is not None
    ]


def _known(row: Row) -> Known | None:
    compared = compare(row.case)
    step = compared.step
    if not isinstance(step, Pair):
        return None
    return Known(
        source=row.family,
        subsets=tuple(name for name, chosen in SUBSETS.items() if chosen(compared)),
        error=abs(float(np.log(step.measured / step.predicted))),
        shipped=float(np.log(step.p90 / step.predicted)),
        adapted=row.case.job.adapters is not None,
        pair=pair_of(*row.pair),
    )


def chosen(runs: Sequence[Known]) -> Widths:
    """Return the least widths that hold four runs of five, every source counted alike.

    Each source is held against the pairs of the others.
    """
    others = {run.source: _pairs(runs, without=run.source) for run in runs}
    near = [run for run in runs if run.pair in others[run.source]]
    far = [run for run in runs if run.pair not in others[run.source]]
    plain = _quantile([run for run in near if not run.adapted], plain=WIDTH)
    adapted = _quantile([run for run in near if run.adapted], plain=ADAPTED_WIDTH)
    errors, weights = np.array([run.error for run in far]), _alike(far)
    for unlearnt in _GRID if far else (UNLEARNT_WIDTH,):
        found = Widths(plain=plain, adapted=adapted, unlearnt=float(unlearnt))
        if not far or weights @ (errors <= found.of(far, set())) >= _COVERAGE:
            return found
    raise ValueError("errors are farther than intervals are looked for")


def _quantile(runs: Sequence[Known], *, plain: float) -> float:
    """Return the error that holds four runs of five; what ships without any."""
    if not runs:
        return plain
    errors = np.array([run.error for run in runs])
    order = np.argsort(errors)
    reached = np.cumsum(_alike(runs)[order])
    place = min(int(np.searchsorted(reached, _COVERAGE)), len(runs) - 1)
    return float(errors[order][place])


def _alike(runs: Sequence[Known]) -> Floats:
    """Return the weights of runs by which each source counts alike, of 1 in all."""
    counts = Counter(run.source for run in runs)
    return np.array([1.0 / counts[run.source] / len(counts) for run in runs])


def _pairs(runs: Iterable[Known], *, without: str) -> set[ChipStack]:
    return {run.pair for run in runs if run.source != without}


def left_out(runs: Sequence[Known]) -> Floats:
    """Return the half widths of runs, each source's as chosen on all others, [runs]."""
    found = np.zeros(len(runs))
    for source in dict.fromkeys(run.source for run in runs):
        own = [place for place, run in enumerate(runs) if run.source == source]
        others = [run for run in runs if run.source != source]
        learnt = {run.pair for run in others}
        found[own] = chosen(others).of([runs[place] for place in own], learnt)
    return found


def likeliest(sources: Iterable[Sequence[LearntRun]]) -> tuple[float, float]:
    """Return the likeliest factors on the deviations that runs share, and on each run's own.

    With the covariance V = a^2 S + b^2 N of a source's errors y, and A = V^-1, variances grow by
    sqrt(y' A S A y / tr A S) a round, and alike for N, until they stay. A source counts as twenty
    runs at most, and an error as 0.7 at most.

    Source: Zhou et al. 2019, doi:10.1080/10618600.2018.1529601 (MM algorithms), section 2.
    """
    parts = [_parts(runs) for runs in sources]
    variances = np.ones(2)
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
    """Return the errors of runs, [runs], and the parts of their covariance, [2, runs, runs]."""
    points = points_of_runs(runs)
    errors = np.clip([run.log_error for run in runs], -_ERROR_MOST, _ERROR_MOST)
    shared = np.array([run.shared_deviation for run in runs])
    own = np.diag([run.own_deviation**2 for run in runs])
    return errors, np.array([np.outer(shared, shared) * points.correlations(points), own])


def shared_ratio(sources: dict[str, tuple[LearntRun, ...]]) -> float:
    """Return r: the share of what runs differ by that runs share which are alike."""
    others = {name: [runs for n, runs in sources.items() if n != name] for name in sources}
    shared, own = likeliest(as_left_out(runs, others[name]) for name, runs in sources.items())
    both = shared**2 * SHARED_RATIO, own**2 * (1.0 - SHARED_RATIO)
    return both[0] / sum(both)


def sources_of(path: Path) -> dict[str, tuple[LearntRun, ...]]:
    """Return the runs of each source of a file, bulk ones left out, as they can be learnt from."""
    found: dict[str, list[LearntRun]] = {}
    for rows in sorted_rows(read_measured_runs(path)).rows.values():
        for row in rows:
            found.setdefault(row.family, []).append(learnt_run(row))
    return {name: tuple(runs) for name, runs in found.items()}


def as_left_out(
    runs: Sequence[LearntRun], others: Iterable[Sequence[LearntRun]]
) -> tuple[LearntRun, ...]:
    """Return a source's runs with the deviations that its pairs have without it."""
    learnt = {pair_of(run.device, run.stack) for own in others for run in own}
    unlearnt = UNLEARNT_WIDTH / P90_DEVIATIONS
    return tuple(
        run
        if pair_of(run.device, run.stack) in learnt
        else run.model_copy(
            update={"shared_deviation": float(np.hypot(run.shared_deviation, unlearnt))}
        )
        for run in runs
    )


def _print_widths(runs: Sequence[Known]) -> None:
    shipped = f"{WIDTH}, {ADAPTED_WIDTH}, {UNLEARNT_WIDTH}"
    print(f"width, under adapters, unlearnt: {_words(chosen(runs))}; shipped {shipped}")
    for source in dict.fromkeys(run.source for run in runs):
        print(f"  without {source}: {_words(chosen([r for r in runs if r.source != source]))}")


def _words(found: Widths) -> str:
    return f"{found.plain:.3f}, {found.adapted:.3f}, {found.unlearnt:.3f}"


def _print_coverage(runs: Sequence[Known], apart: Floats) -> None:
    errors, shipped = (
        np.array([run.error for run in runs]),
        np.array([run.shipped for run in runs]),
    )
    print(
        f"{'held within the interval':26} {'runs':>5} {'shipped':>8} {'left out':>9} {'width':>6}"
    )
    groups: dict[str, list[int]] = {name: [] for name in SUBSETS}
    for place, run in enumerate(runs):
        for name in (*run.subsets, f"  {run.source}"):
            groups.setdefault(name, []).append(place)
    for name, places in groups.items():
        if places:
            near, far = errors[places] <= shipped[places], errors[places] <= apart[places]
            width = np.expm1(float(np.median(apart[places])))
            print(f"{name:26} {len(places):5} {near.mean():8.0%} {far.mean():9.0%} {width:6.0%}")
    means = [_alike(runs) @ (errors <= width) for width in (shipped, apart)]
    print(f"{'mean over sources':26} {'':5} {means[0]:8.0%} {means[1]:9.0%}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the widths, and what they hold by subset and source."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.intervals", description=__doc__)
    parser.add_argument("runs", type=Path, help="measured runs, one JSON object a line")
    options = parser.parse_args(arguments)
    sources = sources_of(options.runs)
    print(f"shared {shared_ratio(sources):.2f}; shipped {SHARED_RATIO}")
    runs = known_runs(options.runs)
    _print_widths(runs)
    _print_coverage(runs, left_out(runs))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
