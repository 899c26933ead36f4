"""Schedule: what a pipeline schedule means for the step and for memory.

    step = alpha · sum_r t_r + (m - alpha) · max_r t_r + max_r u_r

with t_r the seconds of stage r per micro-batch, u_r its seconds once a step, m micro-batches.

Source: Narayanan et al. 2021, arXiv:2104.04473 section 2.2, for equal stages; with uneven ones the
fill and drain pass every stage once, and the slowest sets the pace between.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from planner.cost.configuration import Floats
from planner.schema.strategy import PipelineSchedule

PRICED_SCHEDULES = (PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B)


def alpha(schedule: PipelineSchedule) -> float:
    """Return how often the fill and drain pass all stages; 1 for GPipe and 1F1B alike."""
    if schedule not in PRICED_SCHEDULES:
        raise ValueError(f"schedule {schedule.value} has no closed form here")
    return 1.0


def in_flight(
    schedule: PipelineSchedule, *, micro_batch_count: int, pipeline_parallel_degree: int, stage: int
) -> int:
    """Return how many micro-batches' activations a stage holds at its peak.

    GPipe runs all forwards first: m. 1F1B starts backward once the pipeline is full:
    min(m, p - stage).
    """
    if schedule is PipelineSchedule.GPIPE:
        return micro_batch_count
    return min(micro_batch_count, pipeline_parallel_degree - stage)


def boundary_count(*, pipeline_parallel_degree: int, stage: int) -> int:
    """Return how many neighbours a stage exchanges activations and gradients with."""
    if pipeline_parallel_degree == 1:
        return 0
    return 1 if stage in (0, pipeline_parallel_degree - 1) else 2


def step_seconds(
    stage_seconds: ArrayLike, stage_end_seconds: ArrayLike, *, micro_batch_count: int
) -> float:
    """Return sum_r t_r + (m - 1) max_r t_r + max_r u_r for stages [stages]."""
    per_stage: Floats = np.asarray(stage_seconds, dtype=np.float64)
    at_end: Floats = np.asarray(stage_end_seconds, dtype=np.float64)
    slowest = per_stage.max()
    return float(per_stage.sum() + (micro_batch_count - 1) * slowest + at_end.max())
