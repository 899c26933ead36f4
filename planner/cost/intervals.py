"""Intervals: how far the truth may lie from a prediction.

A step's interval holds 80 % of runs of sources that nothing was learnt from, each source alike. Its
half width, in logarithms, is

    sqrt(w^2 + c u^2),   w = W, or W_a under adapters,

with c how many things about the job no run was learnt from: its stack on this chip, models of its
kind. Of w^2 a share r is what runs share that are alike, of one source of runs or of one's own, and
the rest is each run's own. With z = 1.28, runs share the deviation t and have n of their own:

    t^2 = (r w^2 + c u^2) / z^2,   n^2 = (1 - r) w^2 / z^2.

Runs that a calibration has seen leave less of t, the less the more they are like the job's
(`planner.cost.learnt`). Trials of a tuning also say how far t and n are from right, and both are
multiplied by that (`planner.tuning.spread`).

A machine whose profile rests on steps that its own ranks trained says itself how far they were from
the profile (`step_error_ratio`, a standard deviation s): there n is at most 0.03, as far as medians
of one plan's runs differ (`python -m benchmarks.demo`), and t^2 + n^2 = s^2.

Source: `python -m benchmarks.intervals`: W and W_a are 80 % quantiles of the errors of published
runs whose stack other sources ran on their chip, u what holds as many of the others, and r the
likeliest of how errors of one source go together.
"""

from __future__ import annotations

import math

from planner.cost.configuration import Configuration, Configurations
from planner.cost.learnt import learnt_by, points_of
from planner.hardware import ClusterHardware, DeviceHardware
from planner.hardware_profiles import DeviceProfile
from planner.schema.job import Job
from planner.schema.plan import Interval, IntervalCause
from planner.workload.layer import LayerWorkload, ModelWorkload

RUNS_DIFFER = "runs that are alike differ"
TEAMS_DIFFER = "teams with the same hardware and software differ"
SLACK_AT_THE_LIMIT = 0.018
P90_DEVIATIONS = 1.2815515655446004  # standard normal quantile of 0.9
WIDTH = 0.15  # W
ADAPTED_WIDTH = 0.23  # W_a
UNLEARNT_WIDTH = 0.24  # u
SHARED_RATIO = 0.8  # r
OWN_DEVIATION_MOST = 0.03  # n of a machine's own steps


def interval_causes(
    workload: ModelWorkload, hardware: ClusterHardware, job: Job, configuration: Configuration
) -> tuple[IntervalCause, ...]:
    """Return what makes a step uncertain, and how far each would make it so alone.

    Of several kinds of devices it is the one of which least is known.
    """
    each = [_deviations(workload, kind, job, configuration) for kind in hardware.kinds]
    widest = max(each, key=lambda own: math.hypot(*own.values()))
    width = P90_DEVIATIONS * spread_ratio(job)
    return tuple(
        IntervalCause(cause=cause, ratio=math.expm1(width * deviation))
        for cause, deviation in widest.items()
    )


def step_width(causes: tuple[IntervalCause, ...]) -> float:
    """Return the half width of a step's interval, in logarithms."""
    return math.hypot(*(math.log1p(cause.ratio) for cause in causes))


def spread_ratio(job: Job) -> float:
    """Return how much wider intervals are by what trials of a tuning say, 1 without any."""
    return 1.0 if job.calibration is None else job.calibration.spread_ratio


def _deviations(
    workload: ModelWorkload, kind: DeviceHardware, job: Job, configuration: Configuration
) -> dict[str, float]:
    """Return the deviations of a step on one kind of device by their causes."""
    own = {RUNS_DIFFER: own_deviation(kind, job)}
    learnt = learnt_by(job)
    if job.calibration is not None and learnt is not None:
        rows = Configurations.of([configuration])
        points = points_of(workload, kind, job, configurations=rows)
        deviation = shared_deviation(workload, kind, job)
        left = learnt.covariance(points, deviation=deviation).item()
        count, name = len(job.calibration.runs), job.calibration.name
        cause = f"what calibration {name} leaves open, of {count} measured"
        return {**own, cause: math.sqrt(max(left, 0.0))}
    between = _between_teams(kind, job)
    if kind.profile.step_error_ratio is not None:
        return {**own, "errors of this machine's own steps": between}
    more = UNLEARNT_WIDTH / P90_DEVIATIONS
    return {
        **own,
        TEAMS_DIFFER: between,
        **dict.fromkeys(unlearnt(workload, kind.profile, job), more),
    }


def shared_deviation(workload: ModelWorkload, kind: DeviceHardware, job: Job) -> float:
    """Return t of a job on a kind of device, nothing being learnt."""
    between = _between_teams(kind, job)
    if kind.profile.step_error_ratio is not None:
        return between
    more = len(unlearnt(workload, kind.profile, job)) * UNLEARNT_WIDTH**2 / P90_DEVIATIONS**2
    return math.sqrt(between**2 + more)


def own_deviation(kind: DeviceHardware, job: Job) -> float:
    """Return n of a job on a kind of device."""
    error = kind.profile.step_error_ratio
    if error is not None:
        return min(error, OWN_DEVIATION_MOST)
    return math.sqrt(1.0 - SHARED_RATIO) * _width(job) / P90_DEVIATIONS


def _between_teams(kind: DeviceHardware, job: Job) -> float:
    """Return the deviation that runs share whose stack, chip and kind of model were learnt from."""
    error = kind.profile.step_error_ratio
    if error is None:
        return math.sqrt(SHARED_RATIO) * _width(job) / P90_DEVIATIONS
    return math.sqrt(error**2 - own_deviation(kind, job) ** 2)


def _width(job: Job) -> float:
    return WIDTH if job.adapters is None else ADAPTED_WIDTH


def unlearnt(workload: ModelWorkload, profile: DeviceProfile, job: Job) -> tuple[str, ...]:
    """Return what about a job no run was learnt from, in words.

    That is its stack on a device's chip, and models with towers or state spaces: of the former no
    published run has a price, and those of the latter state too little.
    """
    layers = [layer for layer, _ in workload.runs]
    found = {
        f"no run of {job.stack} on {profile.device} or on its chip was ever learnt from": (
            job.stack not in profile.learnt_stacks
        ),
        "no run of a model with towers was ever learnt from": any(map(_is_of_a_tower, layers)),
        "no run of a model with state spaces was ever learnt from": any(
            gemm.weightless for layer in layers for gemm in layer.gemms
        ),
    }
    return tuple(words for words, is_so in found.items() if is_so)


def _is_of_a_tower(layer: LayerWorkload) -> bool:
    return layer.tokens_per_sequence is not None or bool(layer.sources)


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
