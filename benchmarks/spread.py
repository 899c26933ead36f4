"""`python -m benchmarks.spread FILE...`: how far layouts of one job differ, grid by grid.

Of each grid of published runs (`benchmarks.tuning`) it prints how many layouts ran and Q / (m - 1),
the variance by which logarithms of measured over predicted steps differ, over that which is stated
(`planner.tuning.spread`). Below are the degrees of freedom d and the scale s^2 of

    Q / ((m - 1) s^2) ~ F(m - 1, d)

that are likeliest, each grid alike.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.tuning import grids
from planner.importers.measured_runs import read_measured_runs
from planner.tuning.spread import squares_apart

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
    spreads: list[Spread] = []
    for path in options.files:
        for grid in grids(read_measured_runs(path)):
            trials = grid.trials(range(len(grid.cells)))
            spreads.append((len(trials) - 1, squares_apart(trials) / (len(trials) - 1)))
            print(f"{spreads[-1][1]:.2f} of {len(trials)} layouts: {grid.name}")
    degrees, scale = likeliest(spreads)
    print(f"{len(spreads)} grids: d {degrees:.1f}, s^2 {scale:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
