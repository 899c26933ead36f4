"""Fit: the scalars that are likeliest, given rows and how far from 1 scalars usually are.

Logarithms of scalars are normal around 0 (the shipped value), those of measured over predicted
around 0 as well, with tails that Huber's weights cut. A step of Gauss and Newton solves

    (sum_i w_i J_i' J_i / s^2 + P) d = sum_i w_i J_i' r_i / s^2 + P u

Source: Huber 1964, doi:10.1214/aoms/1177703732.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.calibration.parts import COUNT, Parts, parts_of
from planner.calibration.row import Row
from planner.cost.configuration import Floats

PRIOR_DEVIATIONS = np.array([0.1, 0.2, 0.3, 0.4, 0.15, 0.3])
"""Of the logarithms, in the order of `parts.NAMES`. The mean error of the rest after ten runs, over
14 families, is 9.4 % with these, 9.5 % with half and 9.6 % with twice as much, and 4.9, 5.4 and
4.9 % for dense models in bf16 (`python -m benchmarks.calibration`)."""

NOISE_DEVIATION = 0.1
"""Of log(measured / predicted) at the right scalars; releases of one stack differ by up to 0.13."""

OWN_NOISE_DEVIATION = 0.03
"""Of the same for a user's own runs, which list their steps: medians of runs of one plan within an
hour differ by 1 to 5 % (`python -m benchmarks.demo`)."""

FAMILY_CORRELATION = 0.5
"""Of the errors of two runs of one family, where families are to speak for one another."""

ROWS_FOR_WHOLE_PRIOR = 3
"""Below it priors are narrower, in proportion: one row often makes the rest worse."""

_HUBER_DEVIATIONS = 1.0
_ITERATION_LIMIT = 100
_STEP_LIMIT = 0.3
_CONVERGED = 1e-9
_EXPANSION_LIMIT = 3
_NEAR = 0.1  # as far as parts taken at a point are trusted without another look


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """How far scalars usually are from 1, and runs from what the right scalars say.

    `deviations` are of the logarithms of factors on time, [scalars], which are at least `least`.
    """

    deviations: Floats
    noise_deviation: float = NOISE_DEVIATION
    least: Floats | float = -np.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Logarithms of factors on time, [scalars], and their covariance."""

    factors: Floats
    covariance: Floats

    @property
    def deviations(self) -> Floats:
        """Return the standard deviations, [scalars]."""
        return np.sqrt(np.diag(self.covariance))


def fitted(rows: Sequence[Row], *, prior: Prior | None = None) -> tuple[Fit, Parts]:
    """Return the fit on `rows`, and their parts near it; without a prior that of published runs.

    Parts are taken again where the fit is far from the point at which they were.
    """
    prior = prior or prior_of(rows)
    at = np.zeros(COUNT)
    weights = family_weights([row.family for row in rows])
    for _ in range(_EXPANSION_LIMIT):
        parts = parts_of(rows, at)
        fit = fit_of(parts, weights, prior=prior)
        if np.abs(fit.factors - at).max() <= _NEAR:
            break
        at = fit.factors
    return fit, parts


def family_weights(families: Sequence[str]) -> Floats:
    """Return the weight of each row: many runs of one family say little more than two about others.

    Runs of a single family count in full: it is they that are to be predicted.
    """
    counts = Counter(families)
    if len(counts) < 2:
        return np.ones(len(families))
    shares = {name: 1.0 / (1.0 + (n - 1) * FAMILY_CORRELATION) for name, n in counts.items()}
    return np.array([shares[name] for name in families])


def fit_of(parts: Parts, weights: Floats, *, prior: Prior | None = None) -> Fit:
    """Return the likeliest factors, given the parts of rows and their weights, [rows]."""
    prior = prior or published_prior(len(weights))
    precision = np.diag(1.0 / prior.deviations**2)
    factors = np.zeros(COUNT)
    for _ in range(_ITERATION_LIMIT):
        errors, slopes = parts.log_errors(factors)
        trusted = weights * _huber(errors, prior) / prior.noise_deviation**2
        curvature = (slopes.T * trusted) @ slopes + precision
        gradient = slopes.T @ (trusted * errors) + precision @ factors
        moved = _step(curvature, gradient, held=(factors <= prior.least) & (gradient > 0.0))
        step = factors - np.maximum(factors - moved, prior.least)
        factors = factors - step
        if np.abs(step).max() < _CONVERGED:
            break
    return Fit(factors=factors, covariance=_covariance(parts, weights, factors, prior))


def _step(curvature: Floats, gradient: Floats, *, held: npt.NDArray[np.bool_]) -> Floats:
    """Return Newton's step, 0 for factors that a bound holds, [scalars]."""
    step = np.zeros(len(gradient))
    free = np.flatnonzero(~held)
    step[free] = np.linalg.solve(curvature[np.ix_(free, free)], gradient[free])
    return np.clip(step, -_STEP_LIMIT, _STEP_LIMIT)


def prior_of(rows: Sequence[Row]) -> Prior:
    """Return the prior for `rows`: narrow errors where all list the steps that were measured.

    Such runs are the user's own, on the machine and of the model that are to be predicted.
    """
    if all(row.case.run.steps_s for row in rows):
        return Prior(deviations=PRIOR_DEVIATIONS, noise_deviation=OWN_NOISE_DEVIATION)
    return published_prior(len(rows))


def published_prior(row_count: int) -> Prior:
    """Return how far scalars of published runs are from 1, less where rows are few."""
    return Prior(deviations=PRIOR_DEVIATIONS * min(1.0, row_count / ROWS_FOR_WHOLE_PRIOR))


def _huber(errors: Floats, prior: Prior) -> Floats:
    limit = _HUBER_DEVIATIONS * prior.noise_deviation
    return np.minimum(1.0, limit / np.maximum(np.abs(errors), 1e-12))


def _covariance(parts: Parts, weights: Floats, factors: Floats, prior: Prior) -> Floats:
    """Return the inverse curvature at the fit; rows that scatter more than assumed say less."""
    errors, slopes = parts.log_errors(factors)
    trusted = weights * _huber(errors, prior)
    scatter = float((trusted * errors**2).sum() / weights.sum())
    noise = max(prior.noise_deviation**2, scatter)
    curvature = (slopes.T * trusted) @ slopes / noise
    return np.asarray(np.linalg.inv(curvature + np.diag(1.0 / prior.deviations**2)))
