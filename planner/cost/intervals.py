"""Intervals: how far the truth may lie from a prediction.

A step's interval holds 80 % of runs. Its half width, in logarithms, depends on what the job is:

    w = ln(1 + r) exp(a x mixture + b x log10(P0 / P) + c x host + d x adapters) x calibrated

with r the stack's ratio for large dense models, P the model's parameters where below P0 = 10e9,
host the share of the step that waits for the host, one half at most, and `calibrated` what runs
left out of a calibration were off by, over what was shipped.

Source: `python -m benchmarks.intervals`, a quantile regression on published runs; it prints r and a
to d, and which share of runs lies within when their family is left out.
"""

from __future__ import annotations

import math

from planner.hardware import ClusterHardware, stack_profile
from planner.schema.job import Job
from planner.schema.plan import Interval
from planner.workload.layer import ModelWorkload

LARGE_PARAMETERS = 10e9
HOST_RATIO_MOST = 0.5
SLACK_AT_THE_LIMIT = 0.018
EXPONENTS = (0.48, 0.52, 0.41, 0.43)  # a, b, c, d


def step_width(
    workload: ModelWorkload, hardware: ClusterHardware, job: Job, *, host_ratio: float
) -> float:
    """Return the half width of a step's interval, in logarithms."""
    adapted = job.adapters is not None
    traits = step_traits(workload, host_ratio=host_ratio, adapted=adapted)
    exponent = sum(weight * trait for weight, trait in zip(EXPONENTS, traits, strict=True))
    width = math.log1p(stack_profile(job.stack).step_interval_ratio) * math.exp(exponent)
    return width * _calibrated(hardware, job)


def step_traits(
    workload: ModelWorkload, *, host_ratio: float, adapted: bool
) -> tuple[float, float, float, float]:
    """Return what makes a step less certain: a mixture, few parameters, a busy host, adapters."""
    mixture = any(layer.experts_per_token for layer, _ in workload.runs)
    small = max(math.log10(LARGE_PARAMETERS / workload.parameter_count), 0.0)
    return float(mixture), small, min(host_ratio, HOST_RATIO_MOST), float(adapted)


def _calibrated(hardware: ClusterHardware, job: Job) -> float:
    """Return the calibration's factor, that of the least certain device; 1 without any."""
    if job.calibration is None:
        return 1.0
    scalars = job.calibration.devices
    return max(
        scalars[kind.device].step_interval_ratio if kind.device in scalars else 1.0
        for kind in hardware.kinds
    )


def step_interval(step_seconds: float, *, width: float) -> Interval:
    """Return the 80 % interval of a step, symmetric in logarithms."""
    spread = math.exp(width)
    return Interval(p10=step_seconds / spread, p50=step_seconds, p90=step_seconds * spread)


def peak_at_the_limit(peak_bytes: float, *, runtime_bytes: float, slack_ratio: float) -> float:
    """Return the peak where memory runs short, and the allocator gives back what it need not hold.

        live (1 + min(s, s0)) + runtime,   live = (peak - runtime) / (1 + s)

    with s the slack that it takes where there is room. Of 15 reports of jobs that ran out of memory
    (issues of FastChat, StarCoder, Megatron-LM, DeepSpeed, LitGPT, TRL, Alpaca and others), half
    had 1.8 % and less of what was allocated reserved beside it, 12 at most 5.8 %: s0.
    """
    live = max(peak_bytes - runtime_bytes, 0.0) / (1.0 + slack_ratio)
    return live * (1.0 + min(slack_ratio, SLACK_AT_THE_LIMIT)) + min(runtime_bytes, peak_bytes)


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
