"""`python -m benchmarks.spread FILE...`: how far layouts of one job differ, in steps and in peaks.

Of each grid of published runs (`benchmarks.tuning`) it prints how many layouts ran and Q / (m - 1),
the variance by which logarithms of measured over predicted steps differ, over that which is stated
(`planner.tuning.spread`). Below are the degrees of freedom d and the scale s^2 of

    Q / ((m - 1) s^2) ~ F(m - 1, d)

that are likeliest, each grid alike. Then the same of measured peaks, by groups of three layouts and
more of one model, device, sequence, number format, program and source: their variance over that of
a plan's own which is stated (`planner.tuning.peaks`).
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.tuning import Grid, grids
from planner.calibration.report import learnt_run
from planner.cost.peaks import own_peak_deviation
from planner.importers.measured_runs import read_measured_runs
from planner.schema.measured_run import MeasuredRun
from planner.tuning.spread import squares_apart
from planner.validation.comparison import Comparison, Pair
from planner.validation.measurement import BULK_TIER, TINY_TIER
from planner.validation.report import compared

LAYOUTS_LEAST = 3
DEGREES = np.exp(np.linspace(math.log(0.5), math.log(30.0), 60))
SCALES = np.exp(np.linspace(math.log(0.05), math.log(2.0), 60))

Spread = tuple[int, float]
"""Differences between the layouts of a grid, m - 1, and Q / (m - 1)."""


def log_likelihood(spreads: Iterable[Spread], *, degrees: float, scale: float) -> float:
    """Return the logarithm of the density of F(m - 1, d) at each Q / ((m - 1) s^2), summed."""
    total = 0.0
    for own, ratio in spreads:
        at = ratio / scale
        both = 0.5 * (own + degrees)
        total += math.lgamma(both) - math.lgamma(0.5 * own) - math.lgamma(0.5 * degrees)
        total += 0.5 * own * math.log(own / degrees) + (0.5 * own - 1.0) * math.log(at)
        total -= both * math.log1p(own * at / degrees) + math.log(scale)
    return total


def likeliest(spreads: Sequence[Spread]) -> tuple[float, float]:
    """Return d and s^2."""
    return max(
        ((float(degrees), float(scale)) for degrees in DEGREES for scale in SCALES),
        key=lambda pair: log_likelihood(spreads, degrees=pair[0], scale=pair[1]),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each grid, then what is likeliest of all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spread", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", help="measured runs")
    options = parser.parse_args(arguments)
    runs = [run for path in options.files for run in read_measured_runs(path)]
    _print("steps", [(grid.name, _of_steps(grid)) for grid in grids(runs)])
    _print("peaks", [(" ".join(map(str, key)), of) for key, of in peak_spreads(runs).items()])
    return 0


def _print(what: str, found: Sequence[tuple[str, Spread]]) -> None:
    for name, (own, ratio) in found:
        print(f"{what}: {ratio:.2f} of {own + 1} layouts: {name}")
    degrees, scale = likeliest([spread for _, spread in found])
    print(f"{what}: {len(found)} sets of layouts: d {degrees:.1f}, s^2 {scale:.2f}")


def _of_steps(grid: Grid) -> Spread:
    trials = [learnt_run(row) for row in grid.timed(range(len(grid.cells)))]
    return len(trials) - 1, squares_apart(trials) / (len(trials) - 1)


def peak_spreads(runs: Iterable[MeasuredRun]) -> dict[tuple[object, ...], Spread]:
    """Return how far measured peaks differ beside what is predicted, by groups of layouts."""
    found: dict[tuple[object, ...], dict[str, float]] = defaultdict(dict)
    for answer in compared(runs):
        if isinstance(answer, Comparison) and isinstance(answer.memory, Pair):
            case = answer.case
            if case.run.tier not in {TINY_TIER, BULK_TIER}:
                run, job = case.run, case.job
                what = run.family_name, case.graph.name, run.framework
                key = *what, run.gpu, job.sequence_length, job.precision.value
                layout = f"{case.strategy.to_json()} {case.hardware.device_count}"
                ratio = math.log(answer.memory.measured / answer.memory.predicted)
                found[key].setdefault(layout, ratio)
    stated = own_peak_deviation() ** 2
    return {
        key: (len(each) - 1, statistics.variance(each.values()) / stated)
        for key, each in found.items()
        if len(each) >= LAYOUTS_LEAST
    }


if __name__ == "__main__":
    sys.exit(main())
