"""Our orders against those that torch.distributed.pipelining itself runs (2.13).

Schedules of several virtual stages say their order (`pipeline_order`); GPipe and 1F1B are run on a
stage that notes what it is asked for. No process group is needed for either.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributed.pipelining import (
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleZBVZeroBubble,
)
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
from torch.utils.checkpoint import checkpoint

from planner.cost.orders import rank_orders
from planner.schema.job import Stack
from planner.schema.strategy import PipelineSchedule
from planner.space.schedules import micro_batch_obstacle

TORCH_SCHEDULES: dict[PipelineSchedule, Any] = {
    PipelineSchedule.GPIPE: ScheduleGPipe,
    PipelineSchedule.ONE_F_ONE_B: Schedule1F1B,
    PipelineSchedule.INTERLEAVED: ScheduleInterleaved1F1B,
    PipelineSchedule.ZB_V: ScheduleZBVZeroBubble,
    PipelineSchedule.DUALPIPE_V: ScheduleDualPipeV,
}
Written = list[tuple[str, bool]]
"""Actions as torch writes them, such as 3F0, and whether the next one is its pair."""


class NotingStage:
    """A stage of a pipeline that notes what it is asked to run."""

    has_backward = True

    def __init__(self, index: int, *, num_stages: int, group_size: int, group_rank: int) -> None:
        self.stage_index = index
        self.num_stages = num_stages
        self.group_size = group_size
        self.group_rank = group_rank
        self.is_first = index == 0
        self.is_last = index == num_stages - 1
        self.submod = torch.nn.Identity()
        self.noted: Written = []

    def forward_one_chunk(self, micro_batch: int, *_: object, **__: object) -> None:
        """Note a forward."""
        self.noted.append((f"{self.stage_index}F{micro_batch}", False))

    def backward_one_chunk(self, micro_batch: int, **_: object) -> None:
        """Note a whole backward."""
        self.noted.append((f"{self.stage_index}B{micro_batch}", False))

    def perform_reduce_grad(self, _: int) -> None:
        """Nothing to reduce."""

    def __getattr__(self, name: str) -> Any:
        """No neighbour sends or receives anything."""
        if name.endswith("_ops"):
            return lambda _: []
        raise AttributeError(name)


def torch_schedule(
    schedule: PipelineSchedule, *, degree: int, virtual: int, count: int, rank: int = 0
) -> Any:
    """Return torch's schedule object of a rank."""
    total = degree * virtual
    stages = [
        NotingStage(index * degree + rank, num_stages=total, group_size=degree, group_rank=rank)
        for index in range(virtual)
    ]
    single = schedule in {PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B}
    return TORCH_SCHEDULES[schedule](stages[0] if single else stages, n_microbatches=count)


def noted_by_torch(schedule: PipelineSchedule, *, degree: int, count: int) -> list[Written]:
    """Return what torch asks the stage of each rank to run."""
    ranks = []
    for rank in range(degree):
        run = torch_schedule(schedule, degree=degree, virtual=1, count=count, rank=rank)
        run._initialize_stage = lambda *_, **__: None
        run._step_microbatches()
        ranks.append(run._stage.noted)
    return ranks


def written_by_torch(
    schedule: PipelineSchedule, *, degree: int, virtual: int, count: int
) -> list[Written]:
    """Return the order of each rank that torch's schedule has."""
    order = torch_schedule(schedule, degree=degree, virtual=virtual, count=count).pipeline_order
    return [
        [
            (str(part), action.sub_actions is not None and place == 0)
            for action in order[rank]
            if action is not None
            for place, part in enumerate(action.sub_actions or (action,))
        ]
        for rank in range(degree)
    ]


def ours(schedule: PipelineSchedule, *, degree: int, virtual: int, count: int) -> list[Written]:
    """Return our orders in torch's writing."""
    orders = rank_orders(
        schedule,
        pipeline_parallel_degree=degree,
        virtual_pipeline_degree=virtual,
        micro_batch_count=count,
    )
    return [
        [(f"{a.virtual_stage}{a.kind.value}{a.micro_batch}", a.sends_with_next) for a in order]
        for order in orders
    ]


@pytest.mark.parametrize("schedule", [PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B])
@pytest.mark.parametrize("degree", [1, 2, 3, 4, 8])
def test_one_stage_a_rank_runs_in_torch_s_order(schedule: PipelineSchedule, degree: int) -> None:
    for count in (degree, degree + 1, 2 * degree, 4 * degree + 3):
        assert ours(schedule, degree=degree, virtual=1, count=count) == noted_by_torch(
            schedule, degree=degree, count=count
        )


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("virtual", [2, 3, 4])
def test_interleaved_runs_in_torch_s_order(degree: int, virtual: int) -> None:
    """Full and unfilled pipelines, and rounds longer than the pipeline."""
    schedule = PipelineSchedule.INTERLEAVED
    for count in (1, degree, 2 * degree - 1, 2 * degree, 2 * degree + 2, 4 * degree):
        if count % max(1, count // degree):
            continue
        assert ours(schedule, degree=degree, virtual=virtual, count=count) == written_by_torch(
            schedule, degree=degree, virtual=virtual, count=count
        )


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 5, 8])
def test_zb_v_runs_in_torch_s_order(degree: int) -> None:
    schedule = PipelineSchedule.ZB_V
    for count in (1, degree, 2 * degree - 1, 2 * degree, 4 * degree + 1):
        assert ours(schedule, degree=degree, virtual=2, count=count) == written_by_torch(
            schedule, degree=degree, virtual=2, count=count
        )


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 5, 8])
def test_dualpipe_v_runs_in_torch_s_order(degree: int) -> None:
    schedule = PipelineSchedule.DUALPIPE_V
    for count in (2 * degree, 2 * degree + 1, 4 * degree):
        assert ours(schedule, degree=degree, virtual=2, count=count) == written_by_torch(
            schedule, degree=degree, virtual=2, count=count
        )


@pytest.mark.parametrize("schedule", list(PipelineSchedule))
@pytest.mark.parametrize("degree", [2, 3, 4, 5])
def test_torch_takes_the_micro_batches_that_we_call_legal(
    schedule: PipelineSchedule, degree: int
) -> None:
    """And refuses all others."""
    virtual = {PipelineSchedule.GPIPE: 1, PipelineSchedule.ONE_F_ONE_B: 1}.get(schedule, 2)
    for count in range(1, 6 * degree):
        try:
            torch_schedule(schedule, degree=degree, virtual=virtual, count=count)
        except ValueError:
            taken = False
        else:
            taken = True
        obstacle = micro_batch_obstacle(Stack.TORCH, schedule, degree=degree, count=count)
        assert (obstacle is None) is taken, count


def test_torch_recomputes_checkpointed_blocks_once_for_each_parameter() -> None:
    """Why V-shaped schedules of torch refuse checkpointing: weight gradients taken apart."""

    class Counted(torch.nn.Module):
        """Three linear layers that count their forwards."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4, bias=False) for _ in range(3))
            self.forwards = 0

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            """Return the third layer's output."""
            self.forwards += 1
            for layer in self.layers:
                inputs = layer(inputs).tanh()
            return inputs

    block = Counted()
    inputs = torch.ones(2, 4, requires_grad=True)
    output = checkpoint(block, inputs, use_reentrant=False)
    _, groups = stage_backward_input(
        [output], [torch.ones_like(output)], [inputs], block.parameters()
    )
    assert block.forwards == 2
    stage_backward_weight(block.parameters(), groups)
    assert block.forwards == 2 + 3
