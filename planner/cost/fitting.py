"""Fitting: how much of a device a plan may be predicted to need."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

from planner.cost.intervals import given_back_ratio
from planner.cost.peaks import learnt_peaks, peak_deviation
from planner.hardware import stack_profile
from planner.hardware_profiles import DeviceProfile
from planner.schema.job import Job, LearntPeaks
from planner.units import GIB
from planner.workload.layer import ModelWorkload

_ROUNDING_RATIO = 1e-12  # so that a plan at the limit has the chance in floating point as well


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a predicted peak may take of a device of `D` bytes: `capacity_bytes`.

        C = min((1 - h) D, R + k (D exp(-z e) - R)),   k = (1 + s) / (1 + min(s, s0))

    with h the job's headroom, e the standard deviation of the logarithm of true over predicted
    peak, z the standard normal quantile of the chance of fitting that the job asks for, R the
    runtime's bytes, s the allocator's slack and s0 what of it remains where memory runs short. The
    second is the peak at which `planner.cost.intervals` finds just that chance.

    Where runs of the user's say that peaks are f times as large as predicted, R and 1 + s are, k
    staying what it is, and e is what they leave open. No peak is taken for less than its tensors.
    """

    kept_ratio: float
    likely_ratio: float
    runtime_bytes: float
    slack_ratio: float
    given_back_ratio: float
    error_ratio: float

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


def room(workload: ModelWorkload, profile: DeviceProfile, job: Job) -> Room:
    """Return what a job may take of devices of one kind."""
    stack = stack_profile(job.stack)
    runtime_gib = stack.runtime_gib if profile.runtime_gib is None else profile.runtime_gib
    own_slack, error = profile.allocator_slack_ratio, peak_deviation(workload, profile, job)
    slack = stack.allocator_slack_ratio if own_slack is None else own_slack
    own = Room(
        kept_ratio=1.0 - job.limits.memory_headroom_ratio,
        likely_ratio=_likely_ratio(job.limits.fits_probability, error),
        runtime_bytes=runtime_gib * GIB,
        slack_ratio=slack,
        given_back_ratio=given_back_ratio(slack),
        error_ratio=error,
    )
    learnt = learnt_peaks(workload, profile, job)
    return own if learnt is None else _as_learnt(own, learnt, job.limits.fits_probability)


def _as_learnt(own: Room, learnt: LearntPeaks, chance: float | None) -> Room:
    slack = 1.0 + own.slack_ratio
    factor = max(math.exp(learnt.log_ratio), 1.0 / slack)
    return replace(
        own,
        likely_ratio=_likely_ratio(chance, learnt.error_ratio),
        runtime_bytes=factor * own.runtime_bytes,
        slack_ratio=factor * slack - 1.0,
        error_ratio=learnt.error_ratio,
    )


def _likely_ratio(chance: float | None, error_ratio: float) -> float:
    """Return exp(-z e): the share of a device that what fits with that chance takes at most."""
    if chance is None:
        return math.inf
    return math.exp(-NormalDist().inv_cdf(chance) * error_ratio) * (1.0 - _ROUNDING_RATIO)
