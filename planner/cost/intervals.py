"""Intervals: how far the truth may lie from a prediction.

A step's interval holds 80 % of runs. Its half width, in logarithms, is

    w = sqrt(v^2 + (z t)^2 + (z u)^2) x calibrated,   z = 1.28
    v = W exp(a x mixture + b x log10(P0 / P) + c x host + d x adapters + e x fp16 + f x fp8)

with v what runs of one source differ by, after what the job is, W that of large dense models in
bf16, P the model's parameters where below P0 = 10e9, and host the share of the step that waits for
the host, one half at most; t the standard deviation between sources of runs, which is there however
many were measured; u what comes to it where no run of the stack was ever measured on the device;
and `calibrated` what runs left out of a calibration were off by, over what was shipped.

A machine whose profile rests on steps that its own ranks trained says itself how far they were from
the profile (`step_error_ratio`, a standard deviation s): there w = 1.28 s x calibrated.

Source: `python -m benchmarks.intervals`: a quantile regression on published runs for W and a to f;
for t and u the least that hold 80 % of runs which were not seen before, each source counted alike.
"""

from __future__ import annotations

import math

from planner.hardware import ClusterHardware, device_profile, stack_profile
from planner.hardware_profiles import DeviceProfile
from planner.schema.job import Job, Precision, Stack
from planner.schema.plan import Interval, IntervalCause
from planner.workload.layer import ModelWorkload

LARGE_PARAMETERS = 10e9
HOST_RATIO_MOST = 0.5
RUNS_DIFFER = "runs of one team differ"
SLACK_AT_THE_LIMIT = 0.018
LARGE_WIDTH = 0.100  # W
P90_DEVIATIONS = 1.2815515655446004  # standard normal quantile of 0.9
EXPONENTS = (0.46, 0.36, 1.04, 0.66, 0.63, 0.25)  # a to f
SOURCE_DEVIATION = 0.14  # t
UNMEASURED_DEVIATION = 0.14  # u


def step_width(
    workload: ModelWorkload, hardware: ClusterHardware, job: Job, *, host_ratio: float
) -> float:
    """Return the half width of a step's interval, in logarithms."""
    widths = _widths(workload, hardware, job, host_ratio=host_ratio).values()
    return math.hypot(*widths) * _calibrated(hardware, job)


def interval_causes(
    workload: ModelWorkload, hardware: ClusterHardware, job: Job, *, host_ratio: float
) -> tuple[IntervalCause, ...]:
    """Return what makes a step uncertain, and how far each would make it so alone."""
    widths = _widths(workload, hardware, job, host_ratio=host_ratio)
    calibrated = _calibrated(hardware, job)
    return tuple(
        IntervalCause(cause=cause, ratio=math.expm1(width * calibrated))
        for cause, width in widths.items()
    )


def _widths(
    workload: ModelWorkload, hardware: ClusterHardware, job: Job, *, host_ratio: float
) -> dict[str, float]:
    """Return the parts of the half width by cause, in words."""
    own = [kind.profile.step_error_ratio for kind in hardware.kinds]
    if None not in own:
        return {"errors of this machine's own steps": P90_DEVIATIONS * max(filter(None, own))}
    traits = step_traits(workload, job, host_ratio=host_ratio)
    exponent = sum(weight * trait for weight, trait in zip(EXPONENTS, traits, strict=True))
    widths = {
        RUNS_DIFFER: LARGE_WIDTH * math.exp(exponent),
        "teams with the same hardware and software differ": P90_DEVIATIONS * SOURCE_DEVIATION,
    }
    for kind in hardware.kinds:
        if not _is_measured(kind.profile, job.stack):
            cause = f"no published run of the stack {job.stack} on {kind.device} was seen"
            return {**widths, cause: P90_DEVIATIONS * UNMEASURED_DEVIATION}
    return widths


def _is_measured(device: DeviceProfile, stack: Stack) -> bool:
    """Return whether runs of the stack were seen on the device, or another of the same chip."""
    measured = stack_profile(stack).measured_sources
    chips = {device_profile(name).chip for name in measured} - {None}
    return device.device in measured or device.chip in chips


def step_traits(workload: ModelWorkload, job: Job, *, host_ratio: float) -> tuple[float, ...]:
    """Return what makes a step less certain, in the order of `EXPONENTS`."""
    mixture = any(layer.experts_per_token for layer, _ in workload.runs)
    small = max(math.log10(LARGE_PARAMETERS / workload.parameter_count), 0.0)
    return (
        float(mixture),
        small,
        min(host_ratio, HOST_RATIO_MOST),
        float(job.adapters is not None),
        float(job.precision is Precision.FP16),
        float(job.precision is Precision.FP8),
    )


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
