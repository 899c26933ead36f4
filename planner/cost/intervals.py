"""Intervals: how far the truth may lie from a prediction.

A step's interval holds 80 % of runs. Its half width, in logarithms, is

    w = z sqrt(t^2 + n^2),   z = 1.28,   z n = W exp(a x mixture + b x log10(P0 / P) + c x host
                                                     + d x adapters + e x fp16 + f x fp8)

with t the deviation that runs share which are alike, of one source of runs or of one's own, and n
that of a run by itself, after what the job is: W is that of large dense models in bf16, P the
model's parameters where below P0 = 10e9, and host the share of the step that waits for the host,
one half at most. Runs that a calibration has seen leave less of t, the less the more they are like
the job's (`planner.cost.learnt`). Trials of a tuning also say how far t and n are from right, and
both are multiplied by that (`planner.tuning.spread`).

A machine whose profile rests on steps that its own ranks trained says itself how far they were from
the profile (`step_error_ratio`, a standard deviation s): there n is at most 0.03, as far as medians
of one plan's runs differ (`python -m benchmarks.demo`), and t^2 + n^2 = s^2.

Source: `python -m benchmarks.intervals`: a quantile regression on published runs for a to f, then
the likeliest t and W of those runs, each source alike.
"""

from __future__ import annotations

import math

from planner.cost.configuration import Configuration, Configurations
from planner.cost.learnt import learnt_by, points_of
from planner.hardware import ClusterHardware, DeviceHardware
from planner.schema.job import Job, Precision
from planner.schema.plan import Interval, IntervalCause
from planner.workload.layer import ModelWorkload

LARGE_PARAMETERS = 10e9
HOST_RATIO_MOST = 0.5
RUNS_DIFFER = "runs that are alike differ"
SLACK_AT_THE_LIMIT = 0.018
LARGE_WIDTH = 0.052  # W
P90_DEVIATIONS = 1.2815515655446004  # standard normal quantile of 0.9
EXPONENTS = (0.46, 0.36, 1.04, 0.66, 0.63, 0.25)  # a to f
SHARED_DEVIATION = 0.19  # t
OWN_DEVIATION_MOST = 0.03  # n of a machine's own steps


def interval_causes(
    workload: ModelWorkload,
    hardware: ClusterHardware,
    job: Job,
    configuration: Configuration,
    *,
    host_ratio: float,
) -> tuple[IntervalCause, ...]:
    """Return what makes a step uncertain, and how far each would make it so alone.

    Of several kinds of devices it is the one of which least is known.
    """
    own = max(own_deviation(workload, kind, job, host_ratio=host_ratio) for kind in hardware.kinds)
    shared, cause = max(_shared_left(workload, kind, job, configuration) for kind in hardware.kinds)
    width = P90_DEVIATIONS * spread_ratio(job)
    return tuple(
        IntervalCause(cause=said, ratio=math.expm1(width * deviation))
        for said, deviation in ((RUNS_DIFFER, own), (cause, shared))
    )


def step_width(causes: tuple[IntervalCause, ...]) -> float:
    """Return the half width of a step's interval, in logarithms."""
    return math.hypot(*(math.log1p(cause.ratio) for cause in causes))


def spread_ratio(job: Job) -> float:
    """Return how much wider intervals are by what trials of a tuning say, 1 without any."""
    return 1.0 if job.calibration is None else job.calibration.spread_ratio


def _shared_left(
    workload: ModelWorkload, kind: DeviceHardware, job: Job, configuration: Configuration
) -> tuple[float, str]:
    """Return the deviation that runs like this one share, less what is learnt of it, and why."""
    deviation = shared_deviation(kind)
    learnt = learnt_by(job)
    if job.calibration is not None and learnt is not None:
        rows = Configurations.of([configuration])
        points = points_of(workload, kind, job, configurations=rows)
        left = learnt.covariance(points, deviation=deviation)
        count, name = len(job.calibration.runs), job.calibration.name
        cause = f"what calibration {name} leaves open, of {count} measured"
        return math.sqrt(max(left.item(), 0.0)), cause
    if kind.profile.step_error_ratio is not None:
        return deviation, "errors of this machine's own steps"
    return deviation, "teams with the same hardware and software differ"


def shared_deviation(kind: DeviceHardware) -> float:
    """Return t of a kind of device, nothing being learnt."""
    error = kind.profile.step_error_ratio
    if error is None:
        return SHARED_DEVIATION
    return math.sqrt(error**2 - min(error, OWN_DEVIATION_MOST) ** 2)


def own_deviation(
    workload: ModelWorkload, kind: DeviceHardware, job: Job, *, host_ratio: float
) -> float:
    """Return n of a job on a kind of device."""
    error = kind.profile.step_error_ratio
    if error is not None:
        return min(error, OWN_DEVIATION_MOST)
    traits = step_traits(workload, job, host_ratio=host_ratio)
    exponent = sum(weight * trait for weight, trait in zip(EXPONENTS, traits, strict=True))
    return LARGE_WIDTH * math.exp(exponent) / P90_DEVIATIONS


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


def step_interval(step_seconds: float, *, width: float) -> Interval:
    """Return the 80 % interval of a step, symmetric in logarithms."""
    spread = math.exp(width)
    return Interval(p10=step_seconds / spread, p50=step_seconds, p90=step_seconds * spread)


def given_back_ratio(slack_ratio: float) -> float:
    """Return k: live bytes with slack over those with what remains of it where memory runs short.

        k = (1 + s) / (1 + min(s, s0))

    with s the slack that an allocator takes where there is room. Of 15 reports of jobs that ran out
    of memory (issues of FastChat, StarCoder, Megatron-LM, DeepSpeed, LitGPT, TRL, Alpaca and
    others), half had 1.8 % and less of what was allocated reserved beside it, 12 at most 5.8 %: s0.
    """
    return (1.0 + slack_ratio) / (1.0 + min(slack_ratio, SLACK_AT_THE_LIMIT))


def peak_at_the_limit(peak_bytes: float, *, runtime_bytes: float, given_back_ratio: float) -> float:
    """Return the peak where memory runs short, and the allocator gives back what it need not hold.

    That is (peak - runtime) / k + runtime.
    """
    held = max(peak_bytes - runtime_bytes, 0.0)
    return held / given_back_ratio + min(runtime_bytes, peak_bytes)


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
