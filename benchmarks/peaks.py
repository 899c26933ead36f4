"""`python -m benchmarks.peaks FILE`: how far peaks are from predicted, by peaks and by outcomes.

The logarithm of true over predicted peak of run i is f_i + e_i, as of steps
(`planner.cost.learnt`): f with the deviation t, alike for runs that are alike, e with n. A measured
peak is that, and what its tool and its printing add, r. A run of which it is known whether it
fitted says on which side of d_i it lies, the logarithm of what its device has over what was
predicted:

    P(fitted | f) = Phi((d - f) / n),   P(out of memory | f) = Phi((f - d) / n).

With l the sum of the logarithms of all of these, the likeliest f maximises l - f' K^-1 f / 2; with
W = -l'' there, ln p = l - f' K^-1 f / 2 - ln |1 + K W| / 2, and a run is learnt from as if it had
been measured to be f + l' / W with the deviation W^-1/2.

Printed are the likeliest t, n and r of all sources, a source counting as twenty runs at most; how
much less likely r = 0 is; t and n with each source left out; and of `--unseen FILE...` what chances
of these widths miss and refuse, and what ten runs drawn at random teach of the rest. Test suites'
tiny runs, whose peaks are smaller than any device, are left out.

Source: Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, section 3.4 (Laplace's
approximation); Tobin 1958, doi:10.2307/1907382 (censored observations).
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from planner.cost.configuration import Configurations
from planner.cost.learnt import Points, points_of
from planner.cost.price_list import configuration_of
from planner.hardware import stack_profile
from planner.importers.measured_runs import read_measured_runs
from planner.schema.job import Stack
from planner.validation.comparison import Comparison, Fit, Pair
from planner.validation.measurement import BULK_TIER, TINY_TIER
from planner.validation.report import compared

Floats = NDArray[np.float64]

SHIPPED = stack_profile(Stack.TORCH).memory_error_ratio
_NARROW = 0.08  # to compare with: likeliest of outcomes while one source was priced too wide
_SOURCE_RUNS_MOST, _DRAWN, _DRAWS, _LEAST, _CHANCE = 20, 10, 10, 15, 0.9
_FIRST, _STEPS = (0.1, 0.05, 0.03), (0.4, 0.2, 0.1, 0.05)  # of logarithms
_LEAST_REPORTED = 1e-3
_CERTAIN = 1e-15  # chances nearer to 0 or 1 say no more
_ROUNDS, _STEP_MOST, _CONVERGED, _FAR = 100, 0.2, 1e-9, 8.0
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known of the peaks of runs that are alike by `correlations`, [runs, runs].

    `sides` [runs] are 0 where the logarithm of a peak over predicted was measured, as `log_ratios`,
    1 where it is at most that, the run having fitted, and -1 where it is more.
    """

    correlations: Floats
    log_ratios: Floats
    sides: NDArray[np.int64]

    def some(self, places: Sequence[int]) -> Seen:
        """Return those at `places`."""
        chosen = list(places)
        return Seen(
            correlations=self.correlations[np.ix_(chosen, chosen)],
            log_ratios=self.log_ratios[chosen],
            sides=self.sides[chosen],
        )


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
class Posterior:
    """What runs are as good as measured to be, and how surely, [runs]; how likely all are."""

    values: Floats
    deviations: Floats
    log_likelihood: float


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
    chance = min(max(answer.fit.probability, _CERTAIN), 1.0 - _CERTAIN)
    return SHIPPED * NormalDist().inv_cdf(chance), 1 if answer.fit.fitted else -1


def _seen(rows: Sequence[tuple[Comparison, float, int]]) -> Seen:
    each = []
    for answer, _, _ in rows:
        case, kind = answer.case, answer.case.hardware.kinds[0]
        where = Configurations.of([configuration_of(case.strategy)])
        each.append(points_of(case.workload, kind, case.job, configurations=where))
    points = Points(
        sizes=np.concatenate([one.sizes for one in each]),
        kinds=np.concatenate([one.kinds for one in each]),
    )
    return Seen(
        correlations=points.correlations(points),
        log_ratios=np.array([ratio for _, ratio, _ in rows]),
        sides=np.array([side for _, _, side in rows]),
    )


def posterior_of(seen: Seen, by: Deviations) -> Posterior:
    """Return the posterior of what runs share, by Newton's method; each step is bounded."""
    covariance, one = by.shared**2 * seen.correlations, np.eye(len(seen.sides))
    most = np.zeros(len(seen.sides))
    for _ in range(_ROUNDS):
        _, slopes, curvatures = _likelihood(seen, most, by)
        wanted = covariance @ (curvatures * most + slopes)
        step = np.linalg.solve(one + covariance * curvatures, wanted) - most
        most = most + np.clip(step, -_STEP_MOST, _STEP_MOST)
        if np.abs(step).max() < _CONVERGED:
            break
    logs, slopes, curvatures = _likelihood(seen, most, by)
    size = np.linalg.slogdet(one + covariance * curvatures)[1]
    return Posterior(
        values=most + slopes / curvatures,
        deviations=1.0 / np.sqrt(curvatures),
        log_likelihood=float(logs.sum() - 0.5 * (most @ slopes + size)),  # there K^-1 f = l'
    )


def _likelihood(seen: Seen, shared: Floats, by: Deviations) -> tuple[Floats, Floats, Floats]:
    """Return the logarithm of each run's likelihood, its slope and its negated curvature.

    Of a run on a side of d, with u = side (d - f) / n and r = phi(u) / Phi(u), these are ln Phi(u),
    -side r / n and r (r + u) / n^2.
    """
    measured, rest = seen.sides == 0, seen.log_ratios - shared
    variance = by.own**2 + by.reported**2
    distance = seen.sides * rest / by.own
    logs, ratio = _tail(distance)
    curvature = np.maximum(ratio * (ratio + distance), 1e-12) / by.own**2
    return (
        np.where(measured, -0.5 * (rest**2 / variance + math.log(math.tau * variance)), logs),
        np.where(measured, rest / variance, -seen.sides * ratio / by.own),
        np.where(measured, 1.0 / variance, curvature),
    )


def _tail(u: Floats) -> tuple[Floats, Floats]:
    """Return ln Phi(u) and phi(u) / Phi(u), by their asymptotes far below 0."""
    near, far = np.maximum(u, -_FAR), np.minimum(u, -_FAR)
    chance = 0.5 * _erfc(-near / math.sqrt(2.0))
    density = np.exp(-0.5 * near**2) / math.sqrt(math.tau)
    logs = -0.5 * far**2 - np.log(-far * math.sqrt(math.tau))
    beyond = u < -_FAR
    return np.where(beyond, logs, np.log(chance)), np.where(beyond, -far, density / chance)


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
    return posterior_of(seen, by).log_likelihood * min(1.0, _SOURCE_RUNS_MOST / len(seen.sides))


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
    own = posterior_of(seen.some(drawn.tolist()), by)
    covariance = by.shared**2 * seen.correlations
    whole = covariance[np.ix_(drawn, drawn)] + np.diag(own.deviations**2)
    across = np.linalg.solve(whole, covariance[np.ix_(drawn, rest)])
    left = by.shared**2 - (covariance[np.ix_(drawn, rest)] * across).sum(axis=0)
    return across.T @ own.values, left


def _mean(values: NDArray[np.bool_] | Floats) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def _print_likeliest(sources: dict[str, Seen]) -> Deviations:
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
    return by


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
    by = _print_likeliest(sources_of(options.runs))
    unseen = [seen for path in sorted(options.unseen) for seen in sources_of(path).items()]
    if unseen:
        _print_unseen(dict(unseen), by)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
