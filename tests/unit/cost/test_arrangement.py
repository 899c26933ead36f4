"""Blocks move to where ranks wait least: within ranks, and then from one to another."""

from __future__ import annotations

import operator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.arrangement import arranged
from planner.cost.price_list import priced_strategies
from planner.cost.simulation import longest_path, message_seconds, virtual_stages
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
    """Blocks on two ranks of two virtual stages; those of `full` are checkpointed."""
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
    fields_given = {
        "pipeline_parallel_degree": 2,
        "virtual_pipeline_degree": 2,
        "pipeline_schedule": INTERLEAVED,
        "tensor_parallel_degree": 4,
        "stages": stages,
        **fields,
    }
    return Strategy(**fields_given).resolved(block_count=sum(sizes), global_batch_size=32)


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
    assert sum(sizes) == 32
    assert sizes[3] < 9


def test_moves_within_ranks_change_neither_the_closed_form_nor_what_ranks_hold() -> None:
    """Where the step is short enough no block goes to another rank."""
    uneven = a_strategy(8, 7, 8, 9)
    better = arranged(WORKLOAD, HARDWARE, JOB, uneven, enough_seconds=float("inf"))
    assert better != uneven
    before, after = (predict(WORKLOAD, HARDWARE, JOB, one) for one in (uneven, better))
    assert after.step_seconds.p50 == pytest.approx(before.step_seconds.p50, rel=1e-12)
    for one, other in zip(before.stages, after.stages, strict=True):
        assert other.memory_bytes.parameters == one.memory_bytes.parameters
        assert other.memory_bytes.optimizer == one.memory_bytes.optimizer


def test_moved_blocks_keep_their_choices() -> None:
    """Rank 1 has 7 blocks that are run again and 9 that are not, before and after."""
    uneven = a_strategy(8, 7, 8, 9, full=frozenset({1}))
    better = arranged(WORKLOAD, HARDWARE, JOB, uneven, enough_seconds=float("inf"))
    assert better != uneven
    for ranks_stages in ((0, 2), (1, 3)):
        counts = {"none": 0, "full": 0}
        for stage in (better.stages or ())[ranks_stages[0] :: 2]:
            for group in stage.layers:
                counts[group.activation_checkpointing.value] += group.block_count
        assert counts == (
            {"none": 16, "full": 0} if ranks_stages[0] == 0 else {"none": 9, "full": 7}
        )


def test_blocks_that_go_to_other_ranks_keep_their_choices() -> None:
    uneven = a_strategy(8, 7, 8, 9, full=frozenset({1}))
    better = arranged(WORKLOAD, HARDWARE, JOB, uneven)
    kept = [
        (block, group.activation_checkpointing.value)
        for stage in better.stages or ()
        for group in stage.layers
        for block in range(group.first_block, group.first_block + group.block_count)
    ]
    assert [block for block, _ in kept] == list(range(32))
    assert [choice for _, choice in kept].count("full") == 7
    assert sizes_of(better) != sizes_of(uneven)
    assert priced(better).step_seconds.p50 < priced(uneven).step_seconds.p50


def test_blocks_of_several_kinds_move_along_the_chain() -> None:
    """Gemma-2-9B's blocks look near and far in turn, and stay in this order."""
    workload = model_workload(read_model("gemma-2-9b")[1])
    uneven = a_strategy(8, 14, 8, 12)
    better = arranged(workload, HARDWARE, JOB, uneven, enough_seconds=0.0)
    before, after = (predict_simulated(workload, HARDWARE, JOB, s) for s in (uneven, better))
    assert after.step_seconds.p50 < before.step_seconds.p50
    assert after.fits
    firsts = [stage.layers[0].first_block for stage in better.stages or ()]
    assert firsts == [sum(sizes_of(better)[:index]) for index in range(4)]
    assert sum(sizes_of(better)) == 42


def test_a_lone_micro_batch_passes_every_stage_forward_and_back() -> None:
    """Its longest path is all there is: counts of F, I, W and B on two ranks."""
    alone = a_strategy(
        16,
        16,
        virtual_pipeline_degree=1,
        pipeline_schedule=PipelineSchedule.ONE_F_ONE_B,
        micro_batch_size=32,
    )
    (one,) = priced_strategies(WORKLOAD, HARDWARE, JOB, [alone])
    assert alone.micro_batch_count == 1
    assert longest_path(one).counts == ((1, 0, 0, 1), (1, 0, 0, 1))


@given(
    sizes=st.lists(st.integers(1, 9), min_size=3, max_size=3),
    others=st.lists(st.integers(1, 9), min_size=3, max_size=3),
)
@settings(max_examples=40, deadline=None)
def test_a_path_through_one_plan_is_no_longer_than_the_longest_of_another(
    sizes: list[int], others: list[int]
) -> None:
    """Counts of one plan's longest path, times another's seconds, bound that one's from below."""
    paths, seconds = [], []
    for own in (sizes, others):
        (one,) = priced_strategies(WORKLOAD, HARDWARE, JOB, [a_strategy(*own, 32 - sum(own))])
        paths.append(longest_path(one))
        stages = virtual_stages(one, message_seconds(one))
        seconds.append([part for stage in stages for part in stage.by_kind()])
    first = [count for own in paths[0].counts for count in own]
    beside = paths[0].seconds - sum(map(operator.mul, first, seconds[0]))
    bound = beside + sum(map(operator.mul, first, seconds[1]))
    assert beside >= -1e-9
    assert bound <= paths[1].seconds * (1.0 + 1e-9)


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
