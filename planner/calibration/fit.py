"""Fit: the likeliest scalars of a machine, given its own steps and how far off they may be.

Logarithms of scalars are normal around 0 (what kernels alone say), those of measured over predicted
around 0 as well, with tails that Huber's weights cut. A step of Gauss and Newton solves

    (sum_i w_i J_i' J_i / s^2 + P) d = sum_i w_i J_i' r_i / s^2 + P u

Source: Huber 1964, doi:10.1214/aoms/1177703732.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.calibration.parts import COUNT, Parts, parts_of
from planner.calibration.row import Row
from planner.cost.configuration import Floats

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
    noise_deviation: float
    least: Floats | float = -np.inf


def fitted(rows: Sequence[Row], prior: Prior) -> tuple[Floats, Parts]:
    """Return the logarithms of factors on time, [scalars], and the parts of `rows` near them.

    Parts are taken again where the fit is far from the point at which they were.
    """
    at = np.zeros(COUNT)
    for _ in range(_EXPANSION_LIMIT):
        parts = parts_of(rows, at)
        factors = fit_of(parts, prior)
        if np.abs(factors - at).max() <= _NEAR:
            break
        at = factors
    return factors, parts


def fit_of(parts: Parts, prior: Prior) -> Floats:
    """Return the likeliest logarithms of factors, [scalars], given the parts of rows."""
    precision = np.diag(1.0 / prior.deviations**2)
    factors = np.zeros(COUNT)
    for _ in range(_ITERATION_LIMIT):
        errors, slopes = parts.log_errors(factors)
        trusted = _huber(errors, prior) / prior.noise_deviation**2
        curvature = (slopes.T * trusted) @ slopes + precision
        gradient = slopes.T @ (trusted * errors) + precision @ factors
        moved = _step(curvature, gradient, held=(factors <= prior.least) & (gradient > 0.0))
        step = factors - np.maximum(factors - moved, prior.least)
        factors = factors - step
        if np.abs(step).max() < _CONVERGED:
            break
    return factors


def _step(curvature: Floats, gradient: Floats, *, held: npt.NDArray[np.bool_]) -> Floats:
    """Return Newton's step, 0 for factors that a bound holds, [scalars]."""
    step = np.zeros(len(gradient))
    free = np.flatnonzero(~held)
    step[free] = np.linalg.solve(curvature[np.ix_(free, free)], gradient[free])
    return np.clip(step, -_STEP_LIMIT, _STEP_LIMIT)


def _huber(errors: Floats, prior: Prior) -> Floats:
    limit = _HUBER_DEVIATIONS * prior.noise_deviation
    return np.minimum(1.0, limit / np.maximum(np.abs(errors), 1e-12))
