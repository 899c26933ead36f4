"""Peaks: what trials say of the memory that other plans need.

The logarithm of true over predicted peak is g + e, normal around 0 with the standard deviation s
that `planner.cost.intervals.fits_probability` goes by. Plans of one job on one machine share g, of
variance q s^2; e is a plan's own, of the deviation S = r s sqrt(1 - q). Of a trial that was
measured its ratio y is known, of another only whether it fitted. With d = log(D / p) the room that
a prediction p leaves of a device of D bytes,

    p(y | g, r) = phi((y - g) / S) / S,   P(fits | g, r) = Phi((d - g) / S),

and the posterior of g and r is their prior times the likelihoods of all trials. A trial without
memory moves g up, one that fits without a measured peak moves it down, each the more the less it
was to be expected. A peak of less than e^-s of what was predicted counts as one of that: how much
less some take says nothing of how much more another may. Of machines drawn as stated here 93 to
94 % fit for it where 95 are asked for. r is by how much plans differ more, or less, than is stated,
as of steps (`planner.tuning.spread`): a^2 v / r^2 is chi-squared with v degrees of freedom. It is 1
until something was measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from planner.calibration.peaks import PeakTrial
from planner.cost.configuration import Floats
from planner.cost.peaks import PEAK_SHARED_RATIO
from planner.schema.job import LearntPeaks

DEGREES_OF_FREEDOM, SCALE = 1.5, 0.45
"""v and a^2: the likeliest of 24 published groups (`python -m benchmarks.spread`), of which the
variance within goes from 0.03 to 16 times (1 - q) s^2."""

_EVEN_CHANCE_JUDGED_AT = 0.9
_REACH = 5.0  # standard deviations of g that are looked at on either side
_NODES = 201
_LEAST_SPREAD, _MOST_SPREAD, _SPREADS = 0.1, 20.0, 41
_HALVINGS = 50
_erf = np.vectorize(math.erf, otypes=[np.float64])


def learnt_peaks(
    trials: Sequence[PeakTrial], *, error_ratio: float, chance: float | None
) -> LearntPeaks | None:
    """Return what trials say, as a normal that has its mean and its quantile of `chance`.

    `error_ratio` is s. A chance of one half or less is of no tail: there the quantile is that of
    0.9.
    """
    if not trials:
        return None
    tail = _EVEN_CHANCE_JUDGED_AT if chance is None or chance <= 0.5 else chance
    peaks = Peaks.of(trials, error_ratio=error_ratio)
    deviation = (peaks.least_room(tail) - peaks.mean) / NormalDist().inv_cdf(tail)
    return LearntPeaks(log_ratio=peaks.mean, error_ratio=deviation, trial_count=len(trials))


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """The posterior: `weights` [g, r] of `nodes` of g and `deviations` S, which sum to 1."""

    nodes: Floats
    deviations: Floats
    weights: Floats

    @staticmethod
    def of(trials: Sequence[PeakTrial], *, error_ratio: float) -> Peaks:
        """Return what trials say, given the deviation s of one prediction."""
        standard = np.linspace(-_REACH, _REACH, _NODES)
        nodes = standard * error_ratio * math.sqrt(PEAK_SHARED_RATIO)
        spreads, priors = np.ones(1), np.zeros(1)
        if any(trial.log_ratio is not None for trial in trials):
            spreads = np.geomspace(_LEAST_SPREAD, _MOST_SPREAD, _SPREADS)
            priors = -DEGREES_OF_FREEDOM * (np.log(spreads) + 0.5 * SCALE / spreads**2)
        deviations = spreads * error_ratio * math.sqrt(1.0 - PEAK_SHARED_RATIO)
        logs = -0.5 * standard[:, None] ** 2 + priors
        for trial in trials:
            logs = logs + _log_likelihoods(trial, nodes, deviations, least=-error_ratio)
        weights = np.exp(logs - logs.max())
        return Peaks(nodes=nodes, deviations=deviations, weights=weights / weights.sum())

    @property
    def mean(self) -> float:
        """Return what g is expected to be."""
        return float(self.weights.sum(axis=1) @ self.nodes)

    def chance(self, room: float) -> float:
        """Return the chance of fitting of a plan that has not been tried."""
        each = _chances(room, self.nodes, self.deviations)
        return min(float((self.weights * each).sum()), 1.0)

    def least_room(self, chance: float) -> float:
        """Return the least d at which a plan has a chance of fitting."""
        low, high = -_REACH, _REACH
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self.chance(middle) >= chance else (middle, high)
        return high


def _log_likelihoods(
    trial: PeakTrial, nodes: Floats, deviations: Floats, *, least: float
) -> Floats:
    """Return those of a trial at each g and r, [g, r]; a y below `least` is taken for that."""
    if trial.log_ratio is not None:
        off = (max(trial.log_ratio, least) - nodes[:, None]) / deviations
        return np.asarray(-0.5 * off**2 - np.log(deviations))
    chances = _chances(trial.room, nodes, deviations)
    return np.asarray(np.log(np.maximum(chances if trial.fitted else 1.0 - chances, 1e-300)))


def _chances(room: float, nodes: Floats, deviations: Floats) -> Floats:
    """Return P(fits | g, r), [g, r]."""
    distances = (room - nodes[:, None]) / (deviations * math.sqrt(2.0))
    return np.asarray(0.5 * (1.0 + _erf(distances)))
