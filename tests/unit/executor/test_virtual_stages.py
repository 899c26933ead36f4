"""Which stages of the chain a pipeline rank holds, and what its modules keep."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from executor.apply.split import split
from executor.apply.virtual_stages import VirtualStage, held_stages, name_in_stage, rank_model
from executor.apply.zero import GradientSync
from executor.errors import ModelMismatchError
from executor.models.decoder import Decoder
from planner.schema.strategy import LayerGroup, Stage, Strategy
from tests.distributed.plans import small_model


def held(**fields: Any) -> list[tuple[int, ...]]:
    """The virtual stages of every pipeline rank."""
    strategy = Strategy(**fields)
    return [held_stages(strategy, rank) for rank in range(strategy.pipeline_parallel_degree)]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_plain_schedules_have_one_stage_on_a_rank(schedule: str) -> None:
    assert held(pipeline_parallel_degree=3, pipeline_schedule=schedule) == [(0,), (1,), (2,)]


def test_interleaved_ranks_take_stages_in_turn() -> None:
    stages = held(
        pipeline_parallel_degree=2,
        virtual_pipeline_degree=3,
        pipeline_schedule="interleaved_1f1b",
    )
    assert stages == [(0, 2, 4), (1, 3, 5)]


@pytest.mark.parametrize("schedule", ["zb_v", "dualpipe_v"])
def test_v_schedules_go_down_the_ranks_and_come_back(schedule: str) -> None:
    stages = held(pipeline_parallel_degree=3, pipeline_schedule=schedule)
    assert stages == [(0, 5), (1, 4), (2, 3)]


@pytest.mark.parametrize("schedule", ["1f1b", "zb_v"])
def test_without_a_pipeline_there_is_one_stage(schedule: str) -> None:
    assert held(pipeline_schedule=schedule) == [(0,)]


def stages(*counts: int) -> tuple[Stage, ...]:
    """Stages with `counts` blocks."""
    made = []
    for index, count in enumerate(counts):
        group = LayerGroup(first_block=sum(counts[:index]), block_count=count)
        made.append(Stage(stage=index, layers=(group,)))
    return tuple(made)


def split_decoder(
    counts: tuple[int, ...], held: tuple[int, ...], *, tied: bool = False
) -> tuple[nn.Module, ...]:
    """The modules that a rank with the `held` stages of a decoder of six blocks gets."""
    with torch.device("meta"):
        model = Decoder(small_model(tied=tied, block_count=6))
    return split(model, declaration=model.declaration(), stages=stages(*counts), held=held)


def parts(module: nn.Module) -> list[str]:
    """The parts of a stage that hold parameters, blocks by number."""
    names = [name.removeprefix("blocks.").split(".")[0] for name, _ in module.named_parameters()]
    return list(dict.fromkeys(names))


def test_uneven_stages_of_a_v_keep_their_own_blocks_and_edges() -> None:
    first, last = split_decoder((1, 2, 1, 2), (0, 3))
    assert parts(first) == ["embedding", "0"]
    assert parts(last) == ["4", "5", "norm", "head"]


def test_the_middle_of_a_v_has_neither_embedding_nor_head() -> None:
    assert [parts(module) for module in split_decoder((1, 2, 1, 2), (1, 2))] == [["1", "2"], ["3"]]


def test_stages_of_one_rank_share_no_parameters() -> None:
    """The two copies of a tied weight are two parameters, whose gradients are summed."""
    first, last = split_decoder((2, 1, 1, 2), (0, 3), tied=True)
    own = {id(parameter) for parameter in first.parameters()}
    assert own.isdisjoint(id(parameter) for parameter in last.parameters())
    assert "head.weight" in dict(last.named_parameters())


def test_a_plan_for_other_blocks_is_refused() -> None:
    with pytest.raises(ModelMismatchError, match=r"plan has 7 blocks.*6 blocks"):
        split_decoder((3, 4), (0,))


def of_rank(*indices: int) -> list[VirtualStage]:
    """Stages with a linear layer each."""
    return [
        VirtualStage(
            index=index,
            count=4,
            plan=stages(1, 1, 1, 1)[index],
            module=nn.Linear(2, 2),
            gradient_sync=GradientSync(),
        )
        for index in indices
    ]


def test_a_lone_stage_is_the_model_that_a_rank_trains() -> None:
    (stage,) = of_rank(1)
    assert rank_model([stage]) is stage.module


def test_parameters_of_several_stages_are_known_by_their_own_names() -> None:
    names = [name for name, _ in rank_model(of_rank(0, 3)).named_parameters()]
    assert names == [
        "virtual_stage_0.weight",
        "virtual_stage_0.bias",
        "virtual_stage_3.weight",
        "virtual_stage_3.bias",
    ]
    assert [name_in_stage(name) for name in names] == ["weight", "bias", "weight", "bias"]


def test_a_models_own_names_stay() -> None:
    assert name_in_stage("virtual_stages.weight") == "virtual_stages.weight"
    assert name_in_stage("blocks.0.weight") == "blocks.0.weight"
