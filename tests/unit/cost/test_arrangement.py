"""Blocks move within ranks so that ranks are slow in the same turns."""

from __future__ import annotations

from typing import Any

import pytest

from planner.cost.arrangement import arranged
from planner.cost.step import predict, predict_simulated
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import read_model
from planner.schema.job import Job
from planner.schema.plan import Prediction
from planner.schema.strategy import LayerGroup, PipelineSchedule, Stage, Strategy
from planner.workload.model import model_workload
from tests.builders import a_job, a_model

WORKLOAD = model_workload(read_model("llama-3-8b")[1])
HARDWARE = cluster_hardware(cluster_from_short_form("8xh100-sxm5-80gb"))
JOB = Job(global_batch_size=32, sequence_length=2048)
INTERLEAVED = PipelineSchedule.INTERLEAVED


def a_strategy(*sizes: int, full: frozenset[int] = frozenset(), **fields: Any) -> Strategy:
    """Llama-3-8B's blocks on two ranks of two virtual stages; those of `full` are checkpointed."""
    firsts = [sum(sizes[:index]) for index in range(len(sizes))]
    stages = tuple(
        Stage(
            stage=index,
            layers=(
                LayerGroup(
                    first_block=firsts[index],
                    block_count=size,
                    zero_stage=1,
                    activation_checkpointing="full" if index in full else "none",
                ),
            ),
        )
        for index, size in enumerate(sizes)
    )
    given = {
        "pipeline_parallel_degree": 2,
        "virtual_pipeline_degree": 2,
        "pipeline_schedule": INTERLEAVED,
        "tensor_parallel_degree": 4,
        "stages": stages,
        **fields,
    }
    return Strategy(**given).resolved(block_count=32, global_batch_size=32)


def sizes_of(strategy: Strategy) -> list[int]:
    return [stage.block_count for stage in strategy.stages or ()]


def priced(strategy: Strategy) -> Prediction:
    return predict_simulated(WORKLOAD, HARDWARE, JOB, strategy)


def test_a_block_leaves_the_turn_that_the_head_makes_slow() -> None:
    """Rank 1 with 7 blocks and then 9 with the head keeps rank 0, with 8 and 8, waiting twice."""
    uneven = a_strategy(8, 7, 8, 9)
    better = arranged(WORKLOAD, HARDWARE, JOB, uneven)
    before, after = priced(uneven), priced(better)
    assert before.simulated is not None
    assert after.simulated is not None
    assert after.simulated.step_seconds < before.simulated.step_seconds
    sizes = sizes_of(better)
    assert (sizes[0] + sizes[2], sizes[1] + sizes[3]) == (16, 16)
    assert sizes[3] < 9


def test_the_closed_form_and_what_ranks_hold_stay_as_they_were() -> None:
    uneven = a_strategy(8, 7, 8, 9)
    better = arranged(WORKLOAD, HARDWARE, JOB, uneven)
    before, after = (predict(WORKLOAD, HARDWARE, JOB, one) for one in (uneven, better))
    assert after.step_seconds.p50 == pytest.approx(before.step_seconds.p50, rel=1e-12)
    for one, other in zip(before.stages, after.stages, strict=True):
        assert other.memory_bytes.parameters == one.memory_bytes.parameters
        assert other.memory_bytes.optimizer == one.memory_bytes.optimizer


def test_moved_blocks_keep_their_choices() -> None:
    """Rank 1 has 7 blocks that are run again and 9 that are not, before and after."""
    uneven = a_strategy(8, 7, 8, 9, full=frozenset({1}))
    better = arranged(WORKLOAD, HARDWARE, JOB, uneven)
    assert better != uneven
    for ranks_stages in ((0, 2), (1, 3)):
        counts = {"none": 0, "full": 0}
        for stage in (better.stages or ())[ranks_stages[0] :: 2]:
            for group in stage.layers:
                counts[group.activation_checkpointing.value] += group.block_count
        assert counts == (
            {"none": 16, "full": 0} if ranks_stages[0] == 0 else {"none": 9, "full": 7}
        )


@pytest.mark.parametrize("schedule", [s for s in PipelineSchedule if s is not INTERLEAVED])
def test_ranks_that_take_no_turns_stay_as_they_are(schedule: PipelineSchedule) -> None:
    virtual = 2 if schedule in {PipelineSchedule.ZB_V, PipelineSchedule.DUALPIPE_V} else 1
    sizes = (8, 7, 8, 9) if virtual == 2 else (15, 17)
    strategy = a_strategy(*sizes, pipeline_schedule=schedule, virtual_pipeline_degree=virtual)
    assert arranged(WORKLOAD, HARDWARE, JOB, strategy) is strategy


def test_a_lone_rank_stays_as_it_is() -> None:
    strategy = Strategy(pipeline_schedule=INTERLEAVED, zero_stage=0).resolved(
        block_count=4, global_batch_size=16
    )
    assert arranged(model_workload(a_model()), HARDWARE, a_job(), strategy) is strategy
