"""Peaks: runs whose peak of memory, or whether they fitted, is known, as what is learnt from.

The logarithm of true over predicted peak of run i is g_i + e_i (`planner.cost.peaks`), e_i with the
deviation n_i. A measured one is known; of another it is known on which side it lies of d_i, the
logarithm of what its device has over what was predicted:

    P(fitted | g) = Phi((d - g) / n),   P(out of memory | g) = Phi((g - d) / n).

With l the sum of the logarithms of all of these, the likeliest g maximises l - g' K^-1 g / 2; with
W = -l'' there, ln p = l - g' K^-1 g / 2 - ln |1 + K W| / 2, and a run is learnt from as if it had
been measured to be g + l' / W with the deviation W^-1/2.

Source: Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, section 3.4 (Laplace's
approximation); Tobin 1958, doi:10.2307/1907382 (censored observations).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from planner.calibration.trust import trusted_deviations
from planner.cost.configuration import Floats
from planner.cost.learnt import Learnt
from planner.cost.peaks import (
    own_peak_deviation,
    peak_deviation,
    points_of_peaks,
    shared_peak_deviation,
)
from planner.schema.job import LearntPeak
from planner.validation.case import Case
from planner.validation.comparison import Pair, memory_pair

_NEAREST = 1e-15  # to 0 and 1 that chances are told apart
_ROUNDS, _STEP_MOST, _CONVERGED, _FAR = 100, 0.2, 1e-9, 8.0
_MOST = 10.0  # that a document keeps of a logarithm
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakTrial:
    """What came of a plan whose prediction left `room`: y where it was measured."""

    room: float
    fitted: bool
    log_ratio: float | None = None


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
class Posterior:
    """What runs are as good as measured to be, and how surely, [runs]; how likely all are."""

    values: Floats
    deviations: Floats
    log_likelihood: float


def peak_trial(case: Case, *, fitted: bool) -> PeakTrial:
    """Return a run as what is learnt of peaks from, priced as its job has it."""
    prediction = case.price()
    pair = memory_pair([case], [prediction]) if fitted else None
    profile = case.hardware.kinds[0].profile
    error = peak_deviation(case.workload, profile, case.job)
    return PeakTrial(
        room=log_room(prediction.fits_probability, error_ratio=error),
        fitted=fitted,
        log_ratio=math.log(pair.measured / pair.predicted) if isinstance(pair, Pair) else None,
    )


def log_room(chance: float, *, error_ratio: float) -> float:
    """Return d of a plan whose predicted chance of fitting is `chance`: Phi(d / s) = chance."""
    inside = min(max(chance, _NEAREST), 1.0 - _NEAREST)
    return error_ratio * NormalDist().inv_cdf(inside)


def learnt_peaks(known: Sequence[tuple[Case, bool]]) -> tuple[LearntPeak, ...]:
    """Return runs, of which it is known whether they fitted, as a calibration keeps their peaks.

    A peak of less than e^-s of what was predicted counts as one of that: how much less some take
    says nothing of how much more another may. One far from what all others say is less trusted.
    Runs that say nothing, having all the room, are left out.
    """
    if not known:
        return ()
    each = [unread_peak(case) for case, _ in known]
    trials = [peak_trial(case, fitted=fitted) for case, fitted in known]
    shared, own = (
        np.array([getattr(one, name) for one in each])
        for name in ("shared_deviation", "own_deviation")
    )
    points = points_of_peaks(each)
    least = -np.hypot(shared, own)
    ratios = np.array([t.room if t.log_ratio is None else t.log_ratio for t in trials])
    sides = np.array([_side(trial) for trial in trials])
    seen = Seen(
        correlations=points.correlations(points),
        log_ratios=np.where(sides == 0, np.maximum(ratios, least), ratios),
        sides=sides,
    )
    found = posterior_of(seen, shared=shared, own=own)

    def learnt_with(tried: Floats) -> Learnt:
        none = np.zeros(len(each))
        return Learnt.of_errors(points, errors=found.values, shared=shared, own=tried, common=none)

    deviations = trusted_deviations(learnt_with, found.deviations)
    return tuple(
        one.model_copy(update={"log_error": float(value), "own_deviation": float(deviation)})
        for one, value, deviation in zip(each, found.values, deviations, strict=True)
        if abs(value) < _MOST and deviation < _MOST
    )


def _side(trial: PeakTrial) -> int:
    if trial.log_ratio is not None:
        return 0
    return 1 if trial.fitted else -1


def unread_peak(case: Case) -> LearntPeak:
    """Return a run by what makes its peak alike, before it is said what the peak was."""
    profile, job = case.hardware.kinds[0].profile, case.job
    return LearntPeak(
        device=profile.device,
        stack=job.stack,
        precision=job.precision,
        sequence_length=job.sequence_length or 1,
        parameter_count=case.workload.parameter_count,
        log_error=0.0,
        shared_deviation=shared_peak_deviation(case.workload, profile, job),
        own_deviation=own_peak_deviation(),
    )


def posterior_of(
    seen: Seen, *, shared: Floats | float, own: Floats | float, reported: float = 0.0
) -> Posterior:
    """Return the posterior of what runs share, by Newton's method; each step is bounded.

    `shared` and `own` are t and n; `reported` is what measured peaks differ by beside.
    """
    own = np.broadcast_to(own, len(seen.sides))
    reach = np.broadcast_to(shared, len(seen.sides))
    covariance, one = np.outer(reach, reach) * seen.correlations, np.eye(len(seen.sides))
    most = np.zeros(len(seen.sides))
    for _ in range(_ROUNDS):
        _, slopes, curvatures = _likelihood(seen, most, own, reported)
        wanted = covariance @ (curvatures * most + slopes)
        step = np.linalg.solve(one + covariance * curvatures, wanted) - most
        most = most + np.clip(step, -_STEP_MOST, _STEP_MOST)
        if np.abs(step).max() < _CONVERGED:
            break
    logs, slopes, curvatures = _likelihood(seen, most, own, reported)
    size = np.linalg.slogdet(one + covariance * curvatures)[1]
    return Posterior(
        values=most + slopes / curvatures,
        deviations=1.0 / np.sqrt(curvatures),
        log_likelihood=float(logs.sum() - 0.5 * (most @ slopes + size)),  # there K^-1 g = l'
    )


def _likelihood(
    seen: Seen, shared: Floats, own: Floats, reported: float
) -> tuple[Floats, Floats, Floats]:
    """Return the logarithm of each run's likelihood, its slope and its negated curvature.

    Of a run on a side of d, with u = side (d - g) / n and r = phi(u) / Phi(u), these are ln Phi(u),
    -side r / n and r (r + u) / n^2.
    """
    measured, rest = seen.sides == 0, seen.log_ratios - shared
    variance = own**2 + reported**2
    distance = seen.sides * rest / own
    logs, ratio = _tail(distance)
    curvature = np.maximum(ratio * (ratio + distance), 1e-12) / own**2
    return (
        np.where(measured, -0.5 * (rest**2 / variance + np.log(math.tau * variance)), logs),
        np.where(measured, rest / variance, -seen.sides * ratio / own),
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
