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

from planner.calibration.parts import COUNT, Parts, parts_of
from planner.calibration.row import Row
from planner.cost.configuration import Floats

PRIOR_DEVIATIONS = np.array([0.1, 0.2, 0.3, 0.4, 0.15, 0.3])
"""Of the logarithms, in the order of `parts.NAMES`. The mean error of the rest after ten runs, over
14 families, is 9.4 % with these, 9.5 % with half and 9.6 % with twice as much, and 4.9, 5.4 and
4.9 % for dense models in bf16 (`python -m benchmarks.calibration`)."""

NOISE_DEVIATION = 0.1
"""Of log(measured / predicted) at the right scalars; releases of one stack differ by up to 0.13."""

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
class Fit:
    """Logarithms of factors on time, [scalars], and their covariance."""

    factors: Floats
    covariance: Floats

    @property
    def deviations(self) -> Floats:
        """Return the standard deviations, [scalars]."""
        return np.sqrt(np.diag(self.covariance))


def fitted(rows: Sequence[Row]) -> tuple[Fit, Parts]:
    """Return the fit on `rows`, and their parts near it.

    Parts are taken again where the fit is far from the point at which they were.
    """
    at = np.zeros(COUNT)
    weights = family_weights([row.family for row in rows])
    for _ in range(_EXPANSION_LIMIT):
        parts = parts_of(rows, at)
        fit = fit_of(parts, weights)
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


def fit_of(parts: Parts, weights: Floats) -> Fit:
    """Return the likeliest factors, given the parts of rows and their weights, [rows]."""
    precision = np.diag(1.0 / prior_deviations(len(weights)) ** 2)
    factors = np.zeros(COUNT)
    for _ in range(_ITERATION_LIMIT):
        errors, slopes = parts.log_errors(factors)
        trusted = weights * _huber(errors) / NOISE_DEVIATION**2
        curvature = (slopes.T * trusted) @ slopes + precision
        gradient = slopes.T @ (trusted * errors) + precision @ factors
        step = np.clip(np.linalg.solve(curvature, gradient), -_STEP_LIMIT, _STEP_LIMIT)
        factors = factors - step
        if np.abs(step).max() < _CONVERGED:
            break
    return Fit(factors=factors, covariance=_covariance(parts, weights, factors))


def prior_deviations(row_count: int) -> Floats:
    """Return how far logarithms of scalars usually are from 0, less where rows are few."""
    return PRIOR_DEVIATIONS * min(1.0, row_count / ROWS_FOR_WHOLE_PRIOR)


def _huber(errors: Floats) -> Floats:
    limit = _HUBER_DEVIATIONS * NOISE_DEVIATION
    return np.minimum(1.0, limit / np.maximum(np.abs(errors), 1e-12))


def _covariance(parts: Parts, weights: Floats, factors: Floats) -> Floats:
    """Return the inverse curvature at the fit; rows that scatter more than assumed say less."""
    errors, slopes = parts.log_errors(factors)
    trusted = weights * _huber(errors)
    scatter = float((trusted * errors**2).sum() / weights.sum())
    noise = max(NOISE_DEVIATION**2, scatter)
    curvature = (slopes.T * trusted) @ slopes / noise
    curvature = curvature + np.diag(1.0 / prior_deviations(len(weights)) ** 2)
    return np.asarray(np.linalg.inv(curvature))
