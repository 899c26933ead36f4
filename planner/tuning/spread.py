"""Spread: how far layouts of one job differ on one machine, as its own trials say.

The logarithm of measured over predicted step of trial i is

    y_i = c + r (f_i + e_i)

with c a factor of machine and job of which nothing is known before, and which cancels where layouts
are compared; f_i and e_i as in `planner.cost.learnt`, of covariance V together; and r by how much
layouts differ more, or less, than that says: d / r^2 is chi-squared with d degrees of freedom. Of m
trials, with C the mean of c that they leave,

    Q = (y - C)' V^-1 (y - C),   r^2 = (d + Q) / (d + m - 1)

are what r is expected to be, and a step that was not measured is Student's t with d + m - 1 degrees
of freedom in place of normal: with t its quantile and z that of the normal, an interval is r t / z
times as wide as V says.

Source: Shah, Wilson and Ghahramani 2014, Student-t processes, arXiv:1402.4306.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from planner.cost.intervals import P90_DEVIATIONS
from planner.cost.learnt import Learnt
from planner.schema.job import LEARNT_RUNS_MOST, Calibration, LearntRun

DEGREES_OF_FREEDOM = 1.9
"""d: the likeliest of 17 published grids (`python -m benchmarks.spread`; 2.0 with the widths of
decision 0027), of which Q / (m - 1) goes from 0.07 to 5.6. The scale that is likeliest with it is
0.47: intervals of published runs are of other jobs and teams too. It is left at 1, so that nothing
is narrower than stated before trials say so."""

KNOWN_BY = 3
"""Trials from which on r is known: two differences say whether they are alike."""

COMMON_DEVIATION = 3.0  # of c: a machine may be e^3 = 20 times as slow as its profile
_TAIL = 0.1
_QUANTILE_MOST = 100.0
_HALVINGS = 60
_ANGLES = 4001


def learnt_together(
    trials: Sequence[LearntRun], *, name: str, earlier: Sequence[LearntRun] = ()
) -> Calibration:
    """Return what trials of one tuning say, beside the runs that its job has learnt from."""
    runs = (*earlier, *_with_common(trials))[-LEARNT_RUNS_MOST:]
    return Calibration(name=name, runs=runs, spread_ratio=_spread_ratio(trials))


def squares_apart(trials: Sequence[LearntRun]) -> float:
    """Return Q of trials of one tuning, to which c adds (C / 3)^2 at most."""
    errors = np.array([run.log_error for run in trials])
    return float(errors @ Learnt.of(_with_common(trials)).weights)


def _with_common(trials: Sequence[LearntRun]) -> tuple[LearntRun, ...]:
    return tuple(run.model_copy(update={"common_deviation": COMMON_DEVIATION}) for run in trials)


def _spread_ratio(trials: Sequence[LearntRun]) -> float:
    degrees = DEGREES_OF_FREEDOM + len(trials) - 1
    scale = math.sqrt((DEGREES_OF_FREEDOM + squares_apart(trials)) / degrees)
    return scale * student_deviations(degrees) / P90_DEVIATIONS


@lru_cache(maxsize=128)
def student_deviations(degrees: float) -> float:
    """Return t, beyond which Student's distribution of so many degrees of freedom has a tenth."""
    low, high = 0.0, _QUANTILE_MOST
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _beyond(middle, degrees) > _TAIL else (low, middle)
    return high


def _beyond(deviations: float, degrees: float) -> float:
    """Return P(T > x) of Student's t, its density integrated over u with x = sqrt(v) tan(u).

    P(T > x) = G((v + 1) / 2) / (sqrt(pi) G(v / 2)) int_u^(pi / 2) cos(u)^(v - 1) du
    """
    angles = np.linspace(math.atan(deviations / math.sqrt(degrees)), 0.5 * math.pi, _ANGLES)
    heights = np.maximum(np.cos(angles), 0.0) ** (degrees - 1.0)
    area = float(np.sum(heights[1:] + heights[:-1]) * 0.5 * (angles[1] - angles[0]))
    scale = math.lgamma(0.5 * (degrees + 1.0)) - math.lgamma(0.5 * degrees)
    return math.exp(scale) / math.sqrt(math.pi) * area
