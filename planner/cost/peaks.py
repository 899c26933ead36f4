"""Peaks: how far true peaks of memory may lie from predicted ones, and what measured ones say.

The logarithm of true over predicted peak of a run is g + e, both normal around 0. What runs share
that are alike, g, has the deviation t, and what is a run's own, e, has n:

    t^2 = q s^2 + c u^2,   n^2 = (1 - q) s^2

with c how many things about the job no run was learnt from, as of its step
(`planner.cost.intervals`). A peak that nobody measured has the deviation sqrt(t^2 + n^2).

Two runs' g have the covariance t_i t_j exp(-d / 8), d being how many doublings they are apart in
sequence length and parameters, and 4 for each of device, stack and number format that differs, as
of steps (`planner.cost.learnt`). Layouts count alike, so that one number says of a job how much
more its peaks are than predicted, and one how surely.

Source: `python -m benchmarks.peaks`: z s is the 80 % quantile of the errors of published peaks,
each source counted alike, which is that of steps, and u is by how much peaks of one source differ
between its devices and stacks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from planner.cost.intervals import P90_DEVIATIONS, WIDTH, unlearnt
from planner.cost.learnt import Learnt, Points
from planner.hardware_profiles import DeviceProfile
from planner.schema.job import Job, LearntPeak, LearntPeaks
from planner.workload.layer import ModelWorkload

PEAK_WIDTH = WIDTH  # z s
UNLEARNT_PEAK_WIDTH = 0.11  # z u

PEAK_SHARED_RATIO = 0.5
"""q. Of 37 groups of four and more published runs of one source and model, the means of
log(measured / predicted peak) differ by a standard deviation of 0.098, and runs within the median
group by 0.094."""


def shared_peak_deviation(workload: ModelWorkload, profile: DeviceProfile, job: Job) -> float:
    """Return t of a job on a kind of device, nothing being learnt."""
    count = len(unlearnt(workload, profile, job))
    variance = PEAK_SHARED_RATIO * PEAK_WIDTH**2 + count * UNLEARNT_PEAK_WIDTH**2
    return math.sqrt(variance) / P90_DEVIATIONS


def own_peak_deviation() -> float:
    """Return n."""
    return math.sqrt(1.0 - PEAK_SHARED_RATIO) * PEAK_WIDTH / P90_DEVIATIONS


def peak_deviation(workload: ModelWorkload, profile: DeviceProfile, job: Job) -> float:
    """Return the standard deviation of the logarithm of true over predicted, nothing learnt."""
    return math.hypot(shared_peak_deviation(workload, profile, job), own_peak_deviation())


def learnt_peaks(workload: ModelWorkload, profile: DeviceProfile, job: Job) -> LearntPeaks | None:
    """Return what a job's calibration says of its peaks, `None` where it says nothing.

    Trials of a tuning are of the job itself, and say more than runs that are like it.
    """
    calibration = job.calibration
    if calibration is None or calibration.peaks is not None or not calibration.measured_peaks:
        return None if calibration is None else calibration.peaks
    peaks, points = calibration.measured_peaks, _points_of_job(workload, profile, job)
    learnt = learnt_of_peaks(peaks)
    shared = shared_peak_deviation(workload, profile, job)
    left = learnt.covariance(points, deviation=shared).item()
    return LearntPeaks(
        log_ratio=learnt.log_factors(points, deviation=shared).item(),
        error_ratio=math.sqrt(max(left, 0.0) + own_peak_deviation() ** 2),
        trial_count=len(peaks),
    )


@lru_cache(maxsize=8)
def learnt_of_peaks(peaks: tuple[LearntPeak, ...]) -> Learnt:
    """Return what the peaks of a calibration say together, worked out once."""
    return Learnt.of_errors(
        points_of_peaks(peaks),
        errors=np.array([peak.log_error for peak in peaks]),
        shared=np.array([peak.shared_deviation for peak in peaks]),
        own=np.array([peak.own_deviation for peak in peaks]),
        common=np.zeros(len(peaks)),
    )


def points_of_peaks(peaks: Sequence[LearntPeak]) -> Points:
    """Return runs with a known peak by what makes their peaks alike."""
    sizes = [(peak.sequence_length, peak.parameter_count) for peak in peaks]
    kinds = [(peak.device, peak.stack.value, peak.precision.value) for peak in peaks]
    return Points(sizes=np.log2(np.array(sizes, dtype=np.float64)), kinds=np.array(kinds))


def _points_of_job(workload: ModelWorkload, profile: DeviceProfile, job: Job) -> Points:
    sizes = [[job.sequence_length or 1, workload.parameter_count]]
    kinds = [[profile.device, job.stack.value, job.precision.value]]
    return Points(sizes=np.log2(np.array(sizes, dtype=np.float64)), kinds=np.array(kinds))
