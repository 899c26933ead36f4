"""The step of a whole strategy with its pipeline run event by event."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.cost.simulation import finish_seconds
from planner.cost.stage import VirtualStageSeconds
from planner.cost.step import predict, predict_simulated
from planner.hardware import ClusterHardware, cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import read_model
from planner.schema.cluster import NetworkLevel, NodeGroup
from planner.schema.job import Job, Stack
from planner.schema.model import BlockRun
from planner.schema.plan import Prediction, SimulatedStep
from planner.schema.strategy import LayerGroup, PipelineSchedule, Stage, Strategy
from planner.workload.layer import ModelWorkload
from planner.workload.model import model_workload
from tests.builders import a_cluster, a_model

GPIPE, ONE_F_ONE_B = PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B


def predicted(
    *blocks: int, degree: int = 2, count: int = 2, stack: Stack = Stack.TORCH, **fields: Any
) -> tuple[Prediction, SimulatedStep]:
    """Price Llama-3-8B with so many blocks on each virtual stage, one sequence a micro-batch."""
    found = predict_simulated(
        *a_request(*blocks, degree=degree, count=count, stack=stack, **fields)
    )
    assert found.simulated is not None
    return found, found.simulated


def a_request(
    *blocks: int, degree: int = 2, count: int = 2, stack: Stack = Stack.TORCH, **fields: Any
) -> tuple[ModelWorkload, ClusterHardware, Job, Strategy]:
    """Gradients are not clipped: no stage waits for another's before its optimiser's step."""
    _, graph = read_model("llama-3-8b")
    strategy = Strategy(
        pipeline_parallel_degree=degree,
        data_parallel_shard_degree=8 // degree,
        micro_batch_count=count,
        stages=_stages(blocks),
        **fields,
    ).resolved(block_count=32, global_batch_size=count * 8 // degree)
    job = Job(
        global_batch_size=count * 8 // degree,
        sequence_length=4096,
        stack=stack,
        gradient_clipping=False,
    )
    hardware = cluster_hardware(cluster_from_short_form("8xh100-sxm5-80gb"))
    return model_workload(graph), hardware, job, strategy


def _stages(blocks: tuple[int, ...]) -> tuple[Stage, ...]:
    firsts = [sum(blocks[:index]) for index in range(len(blocks))]
    return tuple(
        Stage(stage=index, layers=(LayerGroup(first_block=first, block_count=count),))
        for index, (first, count) in enumerate(zip(firsts, blocks, strict=True))
    )


def test_a_lone_rank_takes_what_the_closed_form_says() -> None:
    """Nothing waits: three micro-batches one after another, and the end of the step."""
    found, step = predicted(32, degree=1, count=3)
    (stage,) = found.stages
    by_hand = 3 * (stage.forward_seconds + stage.backward_seconds) + stage.step_end_seconds
    assert step.step_seconds == pytest.approx(by_hand)
    assert step.closed_form_error_ratio == pytest.approx(0.0, abs=1e-9)
    assert step.bubble_ratio == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("schedule", list(PipelineSchedule))
def test_a_lone_rank_needs_no_schedule(schedule: PipelineSchedule) -> None:
    _, step = predicted(32, degree=1, count=1, pipeline_schedule=schedule)
    closed_form = predict(*a_request(32, degree=1, count=1, pipeline_schedule=schedule))
    assert step.step_seconds == pytest.approx(closed_form.step_seconds.p50)


def message_seconds() -> float:
    """Return a message's seconds one way: what one micro-batch takes beside its two stages."""
    found, step = predicted(16, 16, count=1, pipeline_schedule=GPIPE)
    first, second = found.stages
    work = sum(stage.forward_seconds + stage.backward_seconds for stage in (first, second))
    return (step.step_seconds - work - first.step_end_seconds) / 2.0


def test_1f1b_with_a_slow_last_stage_on_paper() -> None:
    """Stage 1 sets the pace: stage 0 ends a message and its own backward after it.

    F0, a message, F1 B1 F1 B1, a message, B0, and then the longer end of the two.
    """
    of_gpipe, _ = predicted(6, 26, pipeline_schedule=GPIPE)  # whose stages wait for no message
    first, second = of_gpipe.stages
    _, step = predicted(6, 26)
    message = message_seconds()
    pace = second.forward_seconds + second.backward_seconds
    last = first.forward_seconds + message + 2 * pace
    ends = (
        last + message + first.backward_seconds + first.step_end_seconds,
        last + second.step_end_seconds,
    )
    assert step.step_seconds == pytest.approx(max(ends))
    busy = 2 * (first.forward_seconds + first.backward_seconds)
    assert step.stages[0].busy_seconds == pytest.approx(busy)
    assert step.stages[0].idle_seconds == pytest.approx(max(ends) - busy - first.step_end_seconds)
    closed_form = predict(*a_request(6, 26)).step_seconds.p50
    ratio = closed_form / step.step_seconds - 1.0
    assert step.closed_form_error_ratio == pytest.approx(ratio)


def test_gpipe_with_a_slow_first_stage_on_paper() -> None:
    """Two forwards of stage 0, F1, B1 twice, a message each way, and stage 0's last backward.

    Stage 0's first backward is no sooner than its second: B0 outlasts B1, so both follow the first
    gradient: 2 F0 + message + F1 + B1 + message + 2 B0.
    """
    found, step = predicted(26, 6, pipeline_schedule=GPIPE)
    first, second = found.stages
    own = 2 * (first.forward_seconds + first.backward_seconds)
    other = second.forward_seconds + second.backward_seconds + 2 * message_seconds()
    assert step.step_seconds == pytest.approx(own + other + first.step_end_seconds)


def test_busy_idle_and_the_end_of_the_step_make_the_step() -> None:
    _, step = predicted(
        *(5, 3, 4, 4, 4, 4, 3, 5), degree=4, count=8, pipeline_schedule=PipelineSchedule.ZB_V
    )
    for stage in step.stages:
        parts = stage.busy_seconds + stage.idle_seconds + stage.step_end_seconds
        assert parts == pytest.approx(step.step_seconds)
    idle = sum(stage.idle_seconds for stage in step.stages)
    assert step.bubble_ratio == pytest.approx(idle / 4 / step.step_seconds)


@pytest.mark.parametrize("schedule", list(PipelineSchedule))
def test_every_schedule_is_near_its_closed_form(schedule: PipelineSchedule) -> None:
    virtual = 1 if schedule in {GPIPE, ONE_F_ONE_B} else 2
    blocks = [8 // virtual] * (4 * virtual)
    _, step = predicted(
        *blocks, degree=4, count=16, pipeline_schedule=schedule, virtual_pipeline_degree=virtual
    )
    assert abs(step.closed_form_error_ratio) < 0.06
    assert 0.0 < step.bubble_ratio < 0.3


def test_sending_that_blocks_keeps_both_ranks_busy() -> None:
    """Two micro-batches, a message there and one back each: four messages on either rank."""
    found, step = predicted(16, 16, stack=Stack.DEEPSPEED)
    work = [2 * (stage.forward_seconds + stage.backward_seconds) for stage in found.stages]
    assert [stage.busy_seconds for stage in step.stages] == pytest.approx(work)
    sent = found.breakdown_seconds.pipeline_point_to_point
    assert sent > 0.0
    assert step.closed_form_error_ratio == pytest.approx(0.0, abs=0.02)


def test_the_step_that_is_predicted_is_the_simulated_one() -> None:
    found, step = predicted(6, 26)
    assert found.step_seconds.p50 == step.step_seconds
    assert found.breakdown_seconds.total_seconds() == pytest.approx(step.step_seconds)
    closed_form = predict(*a_request(6, 26)).step_seconds.p50
    assert found.closed_form_seconds == pytest.approx(closed_form, rel=1e-12)
    assert closed_form > 1.05 * step.step_seconds


def test_searches_are_spared_the_simulation() -> None:
    _, graph = read_model("llama-3-8b")
    strategy = Strategy(data_parallel_shard_degree=8).resolved(block_count=32, global_batch_size=8)
    found = predict(
        model_workload(graph),
        cluster_hardware(cluster_from_short_form("8xh100-sxm5-80gb")),
        Job(global_batch_size=8, sequence_length=4096),
        strategy,
    )
    assert found.simulated is None


def test_a_long_run_repeats_its_last_round() -> None:
    """GPipe of a slow and a fast stage: 1,000 forwards of 2 s, 1 s, 2 s back, 1,000 of 4 s."""
    stages = [
        VirtualStageSeconds(forward=2.0, input_gradient=2.0, weight_gradient=2.0),
        VirtualStageSeconds(forward=1.0, input_gradient=1.0, weight_gradient=1.0),
    ]
    finishes = finish_seconds(
        GPIPE,
        stages,
        pipeline_parallel_degree=2,
        virtual_pipeline_degree=1,
        micro_batch_count=1000,
        message_seconds=[0.0],
    )
    assert finishes[0] == pytest.approx(2000.0 + 1.0 + 2.0 + 4000.0)
    assert finishes[1] == pytest.approx(2000.0 + 1.0 + 2000.0)


@pytest.mark.parametrize("slow_rank", [0, 1])
def test_no_rank_of_a_long_run_finishes_before_its_work_is_done(slow_rank: int) -> None:
    """64 micro-batches in a V of two ranks, of which one makes up for its waits round by round."""
    stages = [
        VirtualStageSeconds(
            forward=1.0 + 0.02 * (rank == slow_rank),
            input_gradient=1.3 + 0.3 * index,
            weight_gradient=0.7,
        )
        for index, rank in enumerate((0, 1, 1, 0))
    ]
    finishes = finish_seconds(
        PipelineSchedule.ZB_V,
        stages,
        pipeline_parallel_degree=2,
        virtual_pipeline_degree=2,
        micro_batch_count=64,
        message_seconds=[0.001, 0.0, 0.001],
    )
    for rank, own in enumerate(((0, 3), (1, 2))):
        assert finishes[rank] >= 64 * sum(stages[index].total for index in own)


def test_a_pipeline_that_is_too_long_is_not_simulated() -> None:
    """257 stages of one block each."""
    block = a_model().runs[0].block
    graph = a_model(runs=(BlockRun(block=block, block_count=257),))
    strategy = Strategy(pipeline_parallel_degree=257, micro_batch_count=257).resolved(
        block_count=257, global_batch_size=257
    )
    found = predict_simulated(
        model_workload(graph),
        cluster_hardware(cluster_from_short_form("257x1xh100-sxm5-80gb")),
        Job(global_batch_size=257, sequence_length=128),
        strategy,
    )
    assert found.simulated is None
    assert found.step_seconds.p50 > 0.0


@pytest.mark.parametrize("count", [1, 11, 22, 31, 44])
def test_what_rounding_leaves_of_a_step_is_no_bubble(count: int) -> None:
    """One stage waits for nobody; its causes add up to the step but for the last digit."""
    found, _ = predicted(32, degree=1, count=count)
    assert found.breakdown_seconds.bubble == 0.0


@pytest.mark.parametrize(
    ("blocks", "virtual", "message_count"), [((2, 2), 1, 2), ((1, 1, 1, 1), 2, 6)]
)
def test_one_micro_batch_s_messages_take_as_long_on_shared_cores(
    blocks: tuple[int, ...], virtual: int, message_count: int
) -> None:
    """Compute is twice as fast where a core is idle; a message takes a third of 3 s, or none."""
    strategy = Strategy(
        pipeline_parallel_degree=2,
        virtual_pipeline_degree=virtual,
        pipeline_schedule=PipelineSchedule.INTERLEAVED if virtual > 1 else ONE_F_ONE_B,
        micro_batch_count=1,
        stages=_stages(blocks),
    ).resolved(block_count=4, global_batch_size=1)
    block = read_model("llama-3-8b")[1].runs[0].block
    workload = model_workload(a_model(runs=(BlockRun(block=block, block_count=4),)))
    job = Job(global_batch_size=1, sequence_length=128, gradient_clipping=False)

    def seconds(lone_speed: float, latency_seconds: float) -> float:
        hardware = _two_ranks(lone_speed, latency_seconds)
        step = predict_simulated(workload, hardware, job, strategy).simulated
        assert step is not None
        return step.step_seconds

    for lone_speed in (1.0, 2.0):
        waited = seconds(lone_speed, 3.0) - seconds(lone_speed, 0.0)
        assert waited == pytest.approx(message_count)


def _two_ranks(lone_speed: float, latency_seconds: float) -> ClusterHardware:
    level = NetworkLevel(
        name="machine", bandwidth_bytes_per_second=1e9, latency_seconds=latency_seconds
    )
    group = NodeGroup(name="ranks", device="cpu-gloo", node_count=1, devices_per_node=2)
    (kind,) = cluster_hardware(a_cluster(node_groups=(group,), levels=(level,))).kinds
    profile = kind.profile.model_copy(update={"lone_speed_ratio": lone_speed})
    return ClusterHardware(kinds=(replace(kind, profile=profile),))
