"""Schedule: what a pipeline schedule means for the step and for memory.

    step = sum_r fill_r + repeats · max_r t_r + max_r u_r
    fill_r = a F_r + b I_r + c W_r

with F, I and W a rank's seconds per micro-batch for forward, for gradients of inputs with recompute,
and for gradients of weights, t_r = F_r + I_r + W_r, and u_r its seconds once a step.

Source: Narayanan et al. 2021, arXiv:2104.04473 sections 2.2 and 2.3, for equal stages; with uneven
ones the fill and drain pass every stage once, and the slowest sets the pace between.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Floats
from planner.schema.strategy import V_SCHEDULES, PipelineSchedule


PRICED_SCHEDULES = tuple(PipelineSchedule)


@dataclass(frozen=True, slots=True, kw_only=True)
class FillWeights:
    """How much of a rank's forward, input-gradient and weight-gradient seconds fill and drain."""

    forward: float
    input_gradient: float
    weight_gradient: float

    def of(self, forward: Floats, input_gradient: Floats, weight_gradient: Floats) -> Floats:
        """Return the weighted sum, not less than 0."""
        weighted = (
            self.forward * forward
            + self.input_gradient * input_gradient
            + self.weight_gradient * weight_gradient
        )
        return np.maximum(weighted, 0.0)


def fill_weights(
    schedule: PipelineSchedule,
    *,
    pipeline_parallel_degree: int,
    virtual_pipeline_degree: int,
    micro_batch_count: int,  # noqa: ARG001
) -> FillWeights:
    """Return the weights of the fill."""
    p, v = pipeline_parallel_degree, virtual_pipeline_degree
    if schedule is PipelineSchedule.INTERLEAVED:
        return FillWeights(forward=1 / v, input_gradient=1 / v, weight_gradient=1 / v)
    if schedule is PipelineSchedule.ZB_V:
        half = 0.5 * (p - 1) / p
        return FillWeights(forward=half, input_gradient=half, weight_gradient=-half)
    if schedule is PipelineSchedule.DUALPIPE_V:
        half = 0.5 * (p - 1) / p
        return FillWeights(forward=half, input_gradient=2 * half, weight_gradient=-half)
    return FillWeights(forward=1.0, input_gradient=1.0, weight_gradient=1.0)


def repeat_count(
    schedule: PipelineSchedule,
    *,
    pipeline_parallel_degree: int,  # noqa: ARG001
    virtual_pipeline_degree: int,
    micro_batch_count: int,
) -> float:
    """Return how often the slowest stage's pace counts beside the fill."""
    if schedule is PipelineSchedule.INTERLEAVED:
        return micro_batch_count - 1.0 / virtual_pipeline_degree
    if schedule in V_SCHEDULES:
        return float(micro_batch_count)
    return micro_batch_count - 1.0


def in_flight(
    schedule: PipelineSchedule,
    *,
    micro_batch_count: int,
    pipeline_parallel_degree: int,
    virtual_pipeline_degree: int,
    stage: int,
) -> float:
    """Return how many micro-batches' activations a rank holds at its peak.

    Counted in micro-batches of all the layers that the rank holds. GPipe runs all forwards first:
    m. 1F1B starts backward once the pipeline is full: min(m, p - stage).
    """
    m, p, v = micro_batch_count, pipeline_parallel_degree, virtual_pipeline_degree
    if schedule is PipelineSchedule.GPIPE:
        return float(m)
    if schedule is PipelineSchedule.INTERLEAVED:
        return min(float(m), (2 * (p - stage - 1) + (v - 1) * p + 1) / v)
    if schedule is PipelineSchedule.ZB_V:
        return float(min(m, p))
    if schedule is PipelineSchedule.DUALPIPE_V:
        return min(float(m), p + 0.5)
    return float(min(m, p - stage))


def rank_of_virtual_stage(
    schedule: PipelineSchedule, *, pipeline_parallel_degree: int, virtual_stage: int
) -> int:
    """Return the pipeline rank that holds a virtual stage: round and round, or there and back."""
    rank = virtual_stage % pipeline_parallel_degree
    back = virtual_stage // pipeline_parallel_degree % 2 == 1
    if schedule in V_SCHEDULES and back:
        return pipeline_parallel_degree - 1 - rank
    return rank
