"""`python -m benchmarks.calibration FILE`: what ten runs of a stack are worth for its other runs.

Of every device, stack and family with enough published runs, ten are drawn at random, twenty times.
The table has the mean error of the rest with shipped values, with the scalars fitted on the ten,
and with these where the ten themselves bear them out; how often they do; and what share of the
rest then lies within the interval. Steps are sums of parts taken once at the shipped values.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner.calibration.fit import family_weights, fit_of
from planner.calibration.held_out import HeldOut, groups_of
from planner.calibration.parts import COUNT, Parts, parts_of
from planner.calibration.row import Row, sorted_rows
from planner.importers.measured_runs import read_measured_runs
from planner.validation.comparison import compare
from planner.validation.subsets import SUBSETS

Floats = NDArray[np.float64]

_DRAWN, _DRAWS, _LEAST = 10, 20, 15
_SUBSETS = ("all", "dense bf16, from 3B")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Runs of one device, stack and family, their parts, and shipped half widths, [rows]."""

    name: str
    subset: str
    rows: list[Row]
    parts: Parts
    widths: Floats

    def some(self, subset: str, places: Sequence[int]) -> Pool:
        """Return the runs at `places`."""
        return Pool(
            name=self.name,
            subset=subset,
            rows=[self.rows[place] for place in places],
            parts=self.parts.some(places),
            widths=self.widths[list(places)],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Mean errors of the runs that were not drawn, and the share of them within the interval."""

    shipped: float
    fitted: float
    as_taken: float
    taken: float
    covered: float


def pools_of(path: Path) -> Iterator[Pool]:
    """Yield the pools of a file, whole ones before those of a subset."""
    for (device, stack), rows in sorted(sorted_rows(read_measured_runs(path)).rows.items()):
        families: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            families[row.family].append(row)
        for family, own in sorted(families.items()):
            if len(own) >= _LEAST:
                yield from _of_family(f"{device} {stack.value} {family}", own)


def _of_family(name: str, rows: list[Row]) -> Iterator[Pool]:
    compared = [compare(row.case) for row in rows]
    intervals = [one.prediction.step_seconds for one in compared]
    widths = np.array([math.log(interval.p90 / interval.p50) for interval in intervals])
    parts = parts_of(rows, np.zeros(COUNT))
    whole = Pool(name=name, subset="all", rows=rows, parts=parts, widths=widths)
    for subset in _SUBSETS:
        places = [place for place, one in enumerate(compared) if SUBSETS[subset](one)]
        if len(places) >= _LEAST:
            yield whole.some(subset, places)


def outcome_of(pool: Pool) -> Outcome:
    """Return the mean over draws."""
    random = np.random.default_rng(0)
    found = np.array([_drawn(pool, random) for _ in range(_DRAWS)])
    return Outcome(**dict(zip(Outcome.__dataclass_fields__, found.mean(axis=0), strict=True)))


def _drawn(pool: Pool, random: np.random.Generator) -> tuple[float, ...]:
    count = len(pool.rows)
    chosen = sorted(int(place) for place in random.choice(count, _DRAWN, replace=False))
    rest = pool.some(pool.subset, [place for place in range(count) if place not in chosen])
    ten = pool.some(pool.subset, chosen)
    left = _left_out(ten)
    factors = fit_of(ten.parts, np.ones(_DRAWN)).factors
    before, after = _off(rest.parts, np.zeros(COUNT)), _off(rest.parts, factors)
    used = after if left.helps else before
    widths = rest.widths * (left.interval_ratio if left.helps else 1.0)
    covered = float((np.abs(used) <= widths).mean())
    return (*(_mean_error(off) for off in (before, after, used)), float(left.helps), covered)


def _left_out(ten: Pool) -> HeldOut:
    """Return how far off the ten are, each group by the fit on the others."""
    by, groups = groups_of(ten.rows)
    after = np.zeros(_DRAWN)
    for name in dict.fromkeys(groups):
        kept = [place for place, group in enumerate(groups) if group != name]
        own = [place for place, group in enumerate(groups) if group == name]
        weights = family_weights([ten.rows[place].family for place in kept])
        after[own] = _off(ten.parts.some(own), fit_of(ten.parts.some(kept), weights).factors)
    before = _off(ten.parts, np.zeros(COUNT))
    return HeldOut(
        by=by,
        groups=groups,
        before=np.abs(np.expm1(before)),
        after=np.abs(np.expm1(after)),
        widths=np.abs(after) / ten.widths,
    )


def _off(parts: Parts, factors: Floats) -> Floats:
    """Return log(predicted / measured), [rows]."""
    return parts.log_errors(factors)[0]


def _mean_error(off: Floats) -> float:
    return float(np.abs(np.expm1(off)).mean())


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table as markdown, and the means over families."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__)
    parser.add_argument("runs", type=Path, help="measured runs, one JSON object a line")
    found: dict[str, list[Outcome]] = defaultdict(list)
    print("| device, stack, family | runs | shipped | fitted | as taken | taken | in interval |")
    print("|---|---|---|---|---|---|---|")
    for pool in pools_of(parser.parse_args(arguments).runs):
        outcome = outcome_of(pool)
        found[pool.subset].append(outcome)
        name = pool.name if pool.subset == "all" else f"{pool.name}, {pool.subset}"
        _print_row(name, str(len(pool.rows)), outcome)
    for subset, outcomes in found.items():
        means = {
            field: float(np.mean([getattr(one, field) for one in outcomes]))
            for field in Outcome.__dataclass_fields__
        }
        _print_row(f"mean of {len(outcomes)}: {subset}", "", Outcome(**means))
    return 0


def _print_row(name: str, count: str, outcome: Outcome) -> None:
    errors = " | ".join(
        f"{100 * error:.1f} %" for error in (outcome.shipped, outcome.fitted, outcome.as_taken)
    )
    print(f"| {name} | {count} | {errors} | {outcome.taken:.0%} | {outcome.covered:.0%} |")


if __name__ == "__main__":
    raise SystemExit(main())
