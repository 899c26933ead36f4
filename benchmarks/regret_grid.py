"""Grid: every strategy of a stated space on four ranks that planner and executor both allow.

Degrees: all products of four of tensor, pipeline and data-parallel shard degrees, with sequence
parallelism wherever there is tensor parallelism, and expert degrees that divide both the experts
and the shards. ZeRO 0, 1 and 3; checkpointing none and full; the schedules 1f1b and interleaved
1f1b of two virtual stages; micro-batches as large as can be, and a quarter of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from planner.errors import InputError
from planner.planning import estimates
from planner.schema.job import Job
from planner.schema.model import MixtureFeedForward, ModelGraph
from planner.schema.plan import ResolvedCluster, ResolvedModel
from planner.schema.strategy import (
    ActivationCheckpointing,
    PipelineSchedule,
    Strategy,
    ZeroStage,
)

RANK_COUNT = 4
ZERO_STAGES: tuple[ZeroStage, ...] = (0, 1, 3)
CHECKPOINTING = (ActivationCheckpointing.NONE, ActivationCheckpointing.FULL)
SCHEDULES = (PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.INTERLEAVED)
MICRO_BATCH_SHARES = (1, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """A strategy, and the step that the planner predicts for it."""

    strategy: Strategy
    predicted_seconds: float


def entrants(model: ResolvedModel, cluster: ResolvedCluster, job: Job) -> tuple[Entrant, ...]:
    """Return the strategies of the grid that are legal and fit, each once."""
    listed = list(dict.fromkeys(_strategies(model.resolved, job)))
    found: dict[str, Entrant] = {}
    for answer in estimates(model, cluster, job, listed):
        if isinstance(answer, InputError) or not answer.prediction.fits:
            continue
        seconds = answer.prediction.step_seconds.p50
        entrant = Entrant(strategy=answer.strategy, predicted_seconds=seconds)
        found.setdefault(answer.strategy.model_dump_json(), entrant)
    return tuple(found.values())


def _strategies(graph: ModelGraph, job: Job) -> Iterator[Strategy]:
    batch = job.global_batch_size or 1
    for tensor, pipeline, expert in product((1, 2, 4), (1, 2, 4), _expert_degrees(graph)):
        if RANK_COUNT % (tensor * pipeline):
            continue
        shards = RANK_COUNT // (tensor * pipeline)
        stages = ZERO_STAGES if shards > 1 else (0,)
        schedules = SCHEDULES if pipeline > 1 else SCHEDULES[:1]
        choices = product(stages, CHECKPOINTING, schedules, _micro_batches(batch, shards, pipeline))
        for zero, checkpointing, schedule, micro_batch in choices:
            virtual = 2 if schedule is PipelineSchedule.INTERLEAVED else 1
            yield Strategy(
                tensor_parallel_degree=tensor,
                sequence_parallel=tensor > 1,
                pipeline_parallel_degree=pipeline,
                virtual_pipeline_degree=virtual,
                pipeline_schedule=schedule,
                expert_parallel_degree=expert,
                data_parallel_shard_degree=shards,
                micro_batch_size=micro_batch,
                zero_stage=zero,
                activation_checkpointing=checkpointing,
            )


def _expert_degrees(graph: ModelGraph) -> tuple[int, ...]:
    mixed = any(isinstance(run.block.feed_forward, MixtureFeedForward) for run in graph.runs)
    return (1, 2, 4) if mixed else (1,)


def _micro_batches(batch: int, shards: int, pipeline: int) -> tuple[int, ...]:
    """Return sizes of micro-batches: a pipeline has at least one for every stage."""
    largest = max(batch // shards // pipeline, 1)
    return tuple(dict.fromkeys(max(largest // share, 1) for share in MICRO_BATCH_SHARES))
