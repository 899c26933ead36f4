"""A stage says what went wrong in the model, not what torch makes of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import distributed, nn

from executor.apply.boundary import StageBoundary
from executor.apply.pipeline_stage import SyncedStage
from executor.apply.virtual_stages import VirtualStage
from executor.apply.zero import GradientSync
from executor.batch import Batch
from executor.masking import MicroBatch
from executor.mesh import RankMesh
from planner.schema.strategy import LayerGroup, Stage, Strategy

CPU = torch.device("cpu")


class Picky(nn.Module):
    """Takes no more than two sequences."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the tokens, or complain."""
        if len(tokens) > 2:
            raise ValueError("more than two sequences")
        return tokens


@pytest.fixture
def lone_mesh() -> Iterator[RankMesh]:
    """The mesh of a process by itself."""
    store = distributed.HashStore()
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield RankMesh.of(Strategy(), "cpu")
    distributed.destroy_process_group()


def picky_stage(mesh: RankMesh) -> SyncedStage:
    """The only stage of a pipeline of one rank."""
    boundary = StageBoundary(
        micro_batch_size=1,
        sequence_length=4,
        local_sequence_length=4,
        hidden_size=2,
        dtype=torch.float32,
    )
    stage = VirtualStage(
        index=0,
        count=1,
        plan=Stage(stage=0, layers=(LayerGroup(first_block=0, block_count=1),)),
        module=Picky(),
        gradient_sync=GradientSync(),
    )
    return SyncedStage(stage, mesh=mesh, device=CPU, boundary=boundary)


def _forward(mesh: RankMesh, tokens: torch.Tensor) -> torch.Tensor:
    stage = picky_stage(mesh)
    batch = Batch(arguments=(tokens,), named={}, targets=tokens)
    stage.take([MicroBatch(batch=batch, row_count=len(tokens))])
    output: torch.Tensor = stage.forward_one_chunk(0, ())
    return output


def test_an_error_in_the_model_is_raised_as_it_is(lone_mesh: RankMesh) -> None:
    with pytest.raises(ValueError, match="more than two sequences"):
        _forward(lone_mesh, torch.zeros(3, 4))


def test_what_the_model_returns_is_passed_on(lone_mesh: RankMesh) -> None:
    tokens = torch.zeros(2, 4)
    assert torch.equal(_forward(lone_mesh, tokens), tokens)
