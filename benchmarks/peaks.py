"""`python -m benchmarks.peaks FILE`: how far peaks are from predicted, by peaks and by outcomes.

The logarithm of true over predicted peak of run i is f_i + e_i, as of steps
(`planner.cost.learnt`): f with the deviation t, alike for runs that are alike, e with n. A measured
peak is that, and what its tool and its printing add, r. A run of which it is known whether it
fitted says on which side of what its device has it lies (`planner.calibration.peaks`).

Printed are the widths that are chosen on measured peaks: z s, which holds four of five, every
source counted alike, and z u, with u^2 the variance by which means of one source's peaks differ
between its devices and stacks, less what runs of one of them explain. Then the likeliest t, n and r
of all sources, a source counting as twenty runs at most; how much less likely r = 0 is; t and n
with each source left out; and of `--unseen FILE...` what chances of these widths miss and refuse,
and what ten runs drawn at random teach of the rest, as t and n ship. Test suites' tiny runs, whose
peaks are smaller than any device, are left out.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist, fmean, variance

import numpy as np
from numpy.typing import NDArray

from planner.calibration.peaks import Posterior, Seen, log_room, posterior_of, unread_peak
from planner.cost.intervals import P90_DEVIATIONS
from planner.cost.peaks import (
    PEAK_SHARED_RATIO,
    PEAK_WIDTH,
    UNLEARNT_PEAK_WIDTH,
    own_peak_deviation,
    peak_deviation,
    points_of_peaks,
)
from planner.importers.measured_runs import read_measured_runs
from planner.schema.job import Stack
from planner.validation.comparison import Comparison, Fit, Pair
from planner.validation.measurement import BULK_TIER, TINY_TIER
from planner.validation.report import compared

Floats = NDArray[np.float64]

SHIPPED = round(PEAK_WIDTH / P90_DEVIATIONS, 3)
_NARROW = 0.08  # to compare with: likeliest of outcomes while one source was priced too wide
_COVERAGE = 0.8
_SOURCE_RUNS_MOST, _DRAWN, _DRAWS, _LEAST, _CHANCE = 20, 10, 10, 15, 0.9
_FIRST, _STEPS = (0.1, 0.05, 0.03), (0.4, 0.2, 0.1, 0.05)  # of logarithms
_LEAST_REPORTED = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviations:
    """t, n and r."""

    shared: float
    own: float
    reported: float = 0.0

    @property
    def total(self) -> float:
        """Return the deviation of a true peak of which nothing is known."""
        return math.hypot(self.shared, self.own)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakError:
    """How far a measured peak was off, in logarithms, with its source, its device and its stack."""

    source: str
    pair: tuple[str, Stack]
    error: float


def chosen_width(peaks: Sequence[PeakError]) -> float:
    """Return z s: the least width that holds four peaks of five, every source counted alike."""
    counts = Counter(peak.source for peak in peaks)
    sizes = np.array([abs(peak.error) for peak in peaks])
    weights = np.array([1.0 / counts[peak.source] / len(counts) for peak in peaks])
    order = np.argsort(sizes)
    reached = np.cumsum(weights[order])
    return float(sizes[order][min(int(np.searchsorted(reached, _COVERAGE)), len(sizes) - 1)])


def chosen_unlearnt_width(peaks: Sequence[PeakError]) -> float:
    """Return z u, 0 where pairs of one source differ by no more than their runs explain.

    With k pairs of a source, of n runs each and the mean m, and v the variance of runs of one pair,

        u^2 = sum (k - 1) (var(m) - mean(v / n)) / sum (k - 1).

    Source: Searle, Casella and McCulloch 1992, Variance Components, section 3.6 (unbalanced data).
    """
    groups: dict[str, dict[tuple[str, Stack], list[float]]] = defaultdict(lambda: defaultdict(list))
    for peak in peaks:
        groups[peak.source][peak.pair].append(peak.error)
    each = [np.array(own) for pairs in groups.values() for own in pairs.values()]
    within = sum(float(((own - own.mean()) ** 2).sum()) for own in each)
    within /= max(sum(len(own) - 1 for own in each), 1)
    between, degrees = 0.0, 0
    for pairs in groups.values():
        if (freedom := len(pairs) - 1) > 0:
            means = [fmean(own) for own in pairs.values()]
            expected = fmean(within / len(own) for own in pairs.values())
            between += freedom * (variance(means) - expected)
            degrees += freedom
    return P90_DEVIATIONS * math.sqrt(max(between, 0.0) / degrees) if degrees else 0.0


def measured_errors(path: Path) -> Iterator[PeakError]:
    """Yield the errors of a file's measured peaks."""
    for answer in compared(read_measured_runs(path)):
        if isinstance(answer, Comparison) and isinstance(answer.memory, Pair):
            case = answer.case
            if case.run.tier not in {TINY_TIER, BULK_TIER}:
                yield PeakError(
                    source=case.run.family_name,
                    pair=(case.hardware.kinds[0].device, case.job.stack),
                    error=math.log(answer.memory.measured / answer.memory.predicted),
                )


def sources_of(path: Path) -> dict[str, Seen]:
    """Return what is known of the peaks of each source's runs."""
    found: dict[str, list[tuple[Comparison, float, int]]] = defaultdict(list)
    for answer in compared(read_measured_runs(path)):
        if isinstance(answer, Comparison):
            run = answer.case.run
            said = None if run.tier in {TINY_TIER, BULK_TIER} else _said(answer)
            if said is not None:
                found[run.family_name].append((answer, *said))
    return {source: _seen(rows) for source, rows in found.items()}


def _said(answer: Comparison) -> tuple[float, int] | None:
    """Return where a run's peak lies, or what it is on which side of; a measured one counts."""
    if isinstance(answer.memory, Pair):
        return math.log(answer.memory.measured / answer.memory.predicted), 0
    if not isinstance(answer.fit, Fit):
        return None
    case = answer.case
    error = peak_deviation(case.workload, case.hardware.kinds[0].profile, case.job)
    return log_room(answer.fit.probability, error_ratio=error), 1 if answer.fit.fitted else -1


def _seen(rows: Sequence[tuple[Comparison, float, int]]) -> Seen:
    points = points_of_peaks([unread_peak(answer.case) for answer, _, _ in rows])
    return Seen(
        correlations=points.correlations(points),
        log_ratios=np.array([ratio for _, ratio, _ in rows]),
        sides=np.array([side for _, _, side in rows]),
    )


def _posterior(seen: Seen, by: Deviations) -> Posterior:
    return posterior_of(seen, shared=by.shared, own=by.own, reported=by.reported)


def likeliest(sources: Iterable[Seen], *, reported: bool) -> tuple[Deviations, float]:
    """Return the likeliest deviations and how likely: the best neighbour, by finer steps."""
    kept = list(sources)

    def loss(at: tuple[float, ...]) -> float:
        by = Deviations(shared=at[0], own=at[1], reported=at[2])
        return -sum(_counted(seen, by) for seen in kept)

    at: tuple[float, ...] = _FIRST if reported else (*_FIRST[:2], 0.0)
    least = loss(at)
    for step in _STEPS:
        better = True
        while better:
            tried = {near: loss(near) for near in _neighbours(at, math.exp(step))}
            best = min(tried, key=lambda near: tried[near])
            better = tried[best] < least
            if better:
                at, least = best, tried[best]
    return Deviations(shared=at[0], own=at[1], reported=at[2]), -least


def _neighbours(at: tuple[float, ...], factor: float) -> Iterator[tuple[float, ...]]:
    for place, value in enumerate(at):
        if value > _LEAST_REPORTED:
            for other in (value * factor, value / factor):
                yield (*at[:place], other, *at[place + 1 :])


def _counted(seen: Seen, by: Deviations) -> float:
    """Return the likelihood of a source, which counts as twenty runs at most."""
    return _posterior(seen, by).log_likelihood * min(1.0, _SOURCE_RUNS_MOST / len(seen.sides))


def wrong(seen: Seen, *, deviation: float) -> tuple[float, float]:
    """Return the shares missed, of those out of memory, and refused, of those that ran."""
    distance = deviation * NormalDist().inv_cdf(_CHANCE)
    out, ran = (seen.log_ratios[seen.sides == side] for side in (-1, 1))
    return _mean(out >= distance), _mean(ran < distance)


def after(seen: Seen, by: Deviations, *, count: int) -> tuple[float, float]:
    """Return mean errors of measured peaks by `count` others, and the share in the interval."""
    random, found = np.random.default_rng(0), []
    for _ in range(_DRAWS):
        drawn = random.choice(len(seen.sides), count, replace=False)
        rest = np.setdiff1d(np.flatnonzero(seen.sides == 0), drawn)
        means, variances = _taught(seen, drawn, rest, by)
        errors = seen.log_ratios[rest] - means
        reach = NormalDist().inv_cdf(0.9) * np.sqrt(variances + by.own**2)
        found.append((_mean(np.abs(np.expm1(-errors))), _mean(np.abs(errors) <= reach)))
    errors, held = np.mean(found, axis=0)
    return float(errors), float(held)


def _taught(
    seen: Seen, drawn: NDArray[np.int64], rest: NDArray[np.int64], by: Deviations
) -> tuple[Floats, Floats]:
    """Return the mean and the variance of what is shared, of the rest, given those drawn."""
    if not len(drawn):
        return np.zeros(len(rest)), np.full(len(rest), by.shared**2)
    own = _posterior(seen.some(drawn.tolist()), by)
    covariance = by.shared**2 * seen.correlations
    whole = covariance[np.ix_(drawn, drawn)] + np.diag(own.deviations**2)
    across = np.linalg.solve(whole, covariance[np.ix_(drawn, rest)])
    left = by.shared**2 - (covariance[np.ix_(drawn, rest)] * across).sum(axis=0)
    return across.T @ own.values, left


def _mean(values: NDArray[np.bool_] | Floats) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def _print_likeliest(sources: dict[str, Seen]) -> None:
    by, most = likeliest(sources.values(), reported=False)
    print(f"shared {by.shared:.3f}, own {by.own:.3f}: {by.total:.3f} in all; shipped {SHIPPED}")
    apart, more = likeliest(sources.values(), reported=True)
    print(
        f"with {apart.reported:.3f} of measured peaks beside: shared {apart.shared:.3f}, own "
        f"{apart.own:.3f}, {apart.total:.3f} in all, likelier by {more - most:.2f}"
    )
    for name in sources:
        others = [seen for source, seen in sources.items() if source != name]
        left, _ = likeliest(others, reported=False)
        print(f"  without {name}: {left.shared:.3f}, {left.own:.3f}: {left.total:.3f}")


def _print_unseen(sources: dict[str, Seen], by: Deviations) -> None:
    print(
        f"| source | out of memory | missed at {_NARROW} | {SHIPPED} | ran | refused | {SHIPPED} |"
    )
    print("|---" * 7 + "|")
    for name, seen in sources.items():
        counts = [int((seen.sides == side).sum()) for side in (-1, 1)]
        narrow, wide = wrong(seen, deviation=_NARROW), wrong(seen, deviation=SHIPPED)
        if sum(counts):
            cells = [counts[0], narrow[0], wide[0], counts[1], narrow[1], wide[1]]
            print("| " + " | ".join([name, *map(_cell, cells)]) + " |")
    print("\n| source | peaks | MAPE | after ten | in interval | after ten |\n" + "|---" * 6 + "|")
    for name, seen in sources.items():
        if (peaks := int((seen.sides == 0).sum())) >= _LEAST:
            none, ten = after(seen, by, count=0), after(seen, by, count=_DRAWN)
            cells = [peaks, none[0], ten[0], none[1], ten[1]]
            print("| " + " | ".join([name, *map(_cell, cells)]) + " |")


def _cell(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return "" if math.isnan(value) else f"{value:.1%}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what is likeliest, and what it is worth on sources that were not seen."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peaks", description=__doc__)
    parser.add_argument("runs", type=Path, help="measured runs, one JSON object a line")
    parser.add_argument("--unseen", type=Path, nargs="*", default=[], help="sources not seen")
    options = parser.parse_args(arguments)
    peaks = list(measured_errors(options.runs))
    print(
        f"width {chosen_width(peaks):.3f}, shipped {PEAK_WIDTH}; unlearnt "
        f"{chosen_unlearnt_width(peaks):.3f}, shipped {UNLEARNT_PEAK_WIDTH}"
    )
    for name in dict.fromkeys(peak.source for peak in peaks):
        rest = [peak for peak in peaks if peak.source != name]
        print(f"  without {name}: {chosen_width(rest):.3f}, {chosen_unlearnt_width(rest):.3f}")
    _print_likeliest(sources_of(options.runs))
    unseen = [seen for path in sorted(options.unseen) for seen in sources_of(path).items()]
    if unseen:
        own = own_peak_deviation()
        shared = own * math.sqrt(PEAK_SHARED_RATIO / (1.0 - PEAK_SHARED_RATIO))
        _print_unseen(dict(unseen), Deviations(shared=shared, own=own))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
