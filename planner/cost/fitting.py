"""Fitting: how much of a device a plan may be predicted to need."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from planner.cost.intervals import SLACK_AT_THE_LIMIT
from planner.hardware import stack_profile
from planner.hardware_profiles import DeviceProfile
from planner.schema.job import Job
from planner.units import GIB

_ROUNDING_RATIO = 1e-12  # so that a plan at the limit has the chance in floating point as well


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a predicted peak may take of a device of `D` bytes: `capacity_bytes`.

        C = min((1 - h) D, R + k (D exp(-z e) - R)),   k = (1 + s) / (1 + min(s, s0))

    with h the job's headroom, e the standard deviation of the logarithm of true over predicted
    peak, z the standard normal quantile of the chance of fitting that the job asks for, R the
    runtime's bytes, s the allocator's slack and s0 what of it remains where memory runs short. The
    second is the peak at which `planner.cost.intervals` finds just that chance.
    """

    kept_ratio: float
    likely_ratio: float
    runtime_bytes: float
    slack_ratio: float

    @property
    def given_back_ratio(self) -> float:
        """Return k: live bytes with slack over those with what remains of it."""
        return (1.0 + self.slack_ratio) / (1.0 + min(self.slack_ratio, SLACK_AT_THE_LIMIT))

    def capacity_bytes(self, device_bytes: float) -> float:
        """Return the most that a peak may be predicted to take of a device."""
        live = self.likely_ratio * device_bytes - self.runtime_bytes
        likely = self.runtime_bytes + self.given_back_ratio * live
        return max(min(self.kept_ratio * device_bytes, likely), 0.0)

    def device_bytes(self, capacity_bytes: float) -> float:
        """Return the memory of the device that has `capacity_bytes`: the inverse."""
        live = (capacity_bytes - self.runtime_bytes) / self.given_back_ratio
        likely = (self.runtime_bytes + live) / self.likely_ratio
        return max(capacity_bytes / self.kept_ratio, likely)


def room(profile: DeviceProfile, job: Job) -> Room:
    """Return what a job may take of devices of one kind."""
    stack = stack_profile(job.stack)
    runtime_gib = stack.runtime_gib if profile.runtime_gib is None else profile.runtime_gib
    slack = profile.allocator_slack_ratio
    return Room(
        kept_ratio=1.0 - job.limits.memory_headroom_ratio,
        likely_ratio=_likely_ratio(job.limits.fits_probability, stack.memory_error_ratio),
        runtime_bytes=runtime_gib * GIB,
        slack_ratio=stack.allocator_slack_ratio if slack is None else slack,
    )


def _likely_ratio(chance: float | None, error_ratio: float) -> float:
    """Return exp(-z e): the share of a device that what fits with that chance takes at most."""
    if chance is None:
        return math.inf
    return math.exp(-NormalDist().inv_cdf(chance) * error_ratio) * (1.0 - _ROUNDING_RATIO)
