"""Timing: the numbers that make a step of ranks' seconds under a schedule, where cores are shared.

    step = q (sum_r fill_r + repeats · max_r t_r) + max_r u_r

Ranks' seconds are those while all ranks are busy. Where ranks share cores, as four CPU ranks on
two, one that waits leaves its share to the others: the critical path C then passes as fast as
lone ranks are, k times, but all work W takes as long as cores are there for. With a micro-batch of
a stage for the unit, p stages and m micro-batches,

    q = min(1, max(1 / k, (W + L) / C)),   W = m,   L = sum over a < p / k of (1 / k - a / p)

where L is what fill and drain leave idle while a stages, fewer than cores, have work. Of a single
micro-batch W + L is at most p / k: stages work one after another, each as fast as alone. q is that
of even stages; where they are uneven the slowest still counts as if cores were its own. Ranks with
a device each have k = 1, and q = 1.

Source: Graham 1966, doi:10.1002/j.1538-7305.1966.tb01709.x, whose two bounds, work and critical
path, these are.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.cost.configuration import Configuration
from planner.cost.schedule import (
    BoundaryShares,
    FillWeights,
    boundary_shares,
    fill_weights,
    repeat_count,
)
from planner.schema.job import Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleTiming:
    """What a rank's fill counts, how often the slowest pace does, and who pays for boundaries.

    All have q, `path_ratio`, in them.
    """

    path_ratio: float
    weights: FillWeights
    repeat_count: float
    shares: BoundaryShares


def schedule_timing(
    configuration: Configuration, stack: Stack, *, lone_speed_ratio: float
) -> ScheduleTiming:
    """Return the timing of a configuration on ranks that are `lone_speed_ratio` as fast alone."""
    schedule, count = configuration.pipeline_schedule, configuration.micro_batch_count
    degree = configuration.pipeline_parallel_degree
    size = {
        "pipeline_parallel_degree": degree,
        "virtual_pipeline_degree": configuration.virtual_pipeline_degree,
        "micro_batch_count": count,
    }
    weights, repeats = fill_weights(schedule, **size), repeat_count(schedule, **size)
    shares = boundary_shares(schedule, stack)
    if lone_speed_ratio <= 1.0 or degree == 1:
        return ScheduleTiming(path_ratio=1.0, weights=weights, repeat_count=repeats, shares=shares)
    path = degree * weights.of_one(1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0) + repeats
    ratio = _path_ratio(path, degree=degree, count=count, lone_speed_ratio=lone_speed_ratio)
    return ScheduleTiming(
        path_ratio=ratio,
        weights=FillWeights(
            forms=tuple((ratio * f, ratio * i, ratio * w) for f, i, w in weights.forms)
        ),
        repeat_count=ratio * repeats,
        shares=BoundaryShares(pace=shares.pace, fill=ratio * shares.fill),
    )


def _path_ratio(path: float, *, degree: int, count: int, lone_speed_ratio: float) -> float:
    """Return q for a critical path of `path` micro-batches of one stage."""
    alone = 1.0 / lone_speed_ratio
    if count == 1:  # one stage after another, but for what a schedule lets run beside them
        return max(alone, min(degree * alone, 1.0) / path)
    idle = alone - 1.0 / degree  # below 0 where two stages on a core lose more than half each
    stages = 2
    while stages < degree / lone_speed_ratio:
        idle += alone - stages / degree
        stages += 1
    return min(1.0, max(alone, (count + idle) / path))
