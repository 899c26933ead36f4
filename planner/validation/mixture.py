"""Mixture: one prediction of a run that may be of several stacks, each as likely as the others.

The logarithm of what is predicted has the mean m_i and the standard deviation s_i under stack i.
Taken as equally likely, they have the mean m = mean(m_i) and the variance

    s^2 = mean(s_i^2) + mean((m_i - m)^2),

of a normal distribution, whose quantiles are the interval's. The chance of fitting is the mean.
Causes of s^2 are those of each, whose squares are meant as well, and what is not known of the run.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, pstdev

from planner.cost.intervals import P90_DEVIATIONS, step_interval
from planner.schema.plan import Interval, IntervalCause, Prediction


def mixed_interval(intervals: Sequence[Interval]) -> Interval:
    """Return the interval of all, each symmetric in logarithms."""
    if len(intervals) == 1:
        return intervals[0]
    centres = [math.log(one.p50) for one in intervals]
    deviations = [math.log(one.p90 / one.p50) / P90_DEVIATIONS for one in intervals]
    centre = fmean(centres)
    variance = fmean(d**2 for d in deviations) + fmean((c - centre) ** 2 for c in centres)
    return step_interval(math.exp(centre), width=P90_DEVIATIONS * math.sqrt(variance))


def mixed_causes(predictions: Sequence[Prediction], *, unknown: str) -> tuple[IntervalCause, ...]:
    """Return what makes the step of all uncertain; `unknown` is what they differ by, in words."""
    squares: defaultdict[str, float] = defaultdict(float)
    for cause in (cause for one in predictions for cause in one.interval_causes):
        squares[cause.cause] += math.log1p(cause.ratio) ** 2 / len(predictions)
    squares[unknown] = (
        P90_DEVIATIONS * pstdev(math.log(one.step_seconds.p50) for one in predictions)
    ) ** 2
    return tuple(
        IntervalCause(cause=words, ratio=math.expm1(math.sqrt(square)))
        for words, square in squares.items()
    )


def mixed_prediction(predictions: Sequence[Prediction], *, unknown: str) -> Prediction:
    """Return the first prediction with the step and the chance of fitting of all.

    `unknown` says in words what they differ by.
    """
    if len(predictions) == 1:
        return predictions[0]
    return predictions[0].model_copy(
        update={
            "step_seconds": mixed_interval([one.step_seconds for one in predictions]),
            "interval_causes": mixed_causes(predictions, unknown=unknown),
            "fits_probability": fmean(one.fits_probability for one in predictions),
        }
    )
