"""Intervals: how far the truth may lie from a prediction."""

from __future__ import annotations

import math

from planner.schema.plan import Interval


def step_interval(step_seconds: float, *, interval_ratio: float) -> Interval:
    """Return the 80 % interval of a step, symmetric in logarithms.

    `interval_ratio` is the p90's distance from the p50 over the p50, from the stack's profile.
    """
    spread = 1.0 + interval_ratio
    return Interval(p10=step_seconds / spread, p50=step_seconds, p90=step_seconds * spread)


def fits_probability(peak_bytes: float, *, device_bytes: float, error_ratio: float) -> float:
    """Return the chance that the true peak stays within the device, its logarithm being normal.

    `error_ratio` is the standard deviation of the logarithm of true over predicted peak.
    """
    if peak_bytes <= 0.0:
        return 1.0
    if device_bytes <= 0.0:
        return 0.0
    distance = math.log(device_bytes / peak_bytes) / error_ratio
    return 0.5 * (1.0 + math.erf(distance / math.sqrt(2.0)))
