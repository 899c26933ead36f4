"""Fitting: how much of a device a plan may be predicted to need."""

from __future__ import annotations

import math
from statistics import NormalDist

from planner.hardware import stack_profile
from planner.schema.job import Job


def capacity_ratio(job: Job) -> float:
    """Return the share of a device's memory that a predicted peak may take.

        min(1 - h, exp(-z s))

    with h the job's headroom, s the standard deviation of the logarithm of true over predicted
    peak, and z the standard normal quantile of the chance of fitting that the job asks for, if any.
    """
    limits = job.limits
    headroom = 1.0 - limits.memory_headroom_ratio
    if limits.fits_probability is None:
        return headroom
    quantile = NormalDist().inv_cdf(limits.fits_probability)
    return min(headroom, math.exp(-quantile * stack_profile(job.stack).memory_error_ratio))
