"""Forward pass: a rank's stages without a backward, for batches of any size.

Stages of a pipeline take one micro-batch after another, each from the rank before. Sizes of what is
sent follow from the batch, which all ranks of a pipeline have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.fsdp import FSDPModule

from executor.apply.boundary import StageBoundary
from executor.apply.parameter_groups import parameter_groups
from executor.apply.virtual_stages import VirtualStage, held_stages
from executor.batch import Batch
from executor.mesh import PIPELINE, RankMesh
from planner.schema.strategy import Strategy


class ForwardPass:
    """The stages of a rank, in the order of the chain, and where their neighbours are."""

    def __init__(
        self,
        stages: Sequence[VirtualStage],
        *,
        strategy: Strategy,
        mesh: RankMesh,
        boundary: StageBoundary,
        device: torch.device,
    ) -> None:
        self._stages = stages
        self._owners = stage_owners(strategy)
        self._mesh = mesh
        self._boundary = boundary
        self._device = device

    @property
    def last_owner(self) -> int:
        """Return which rank of a pipeline has the outputs."""
        return self._owners[len(self._owners) - 1]

    def run(self, batch: Batch) -> Any:
        """Return what the model puts out of a batch, `None` off its last stage."""
        here: torch.Tensor | None = None
        outputs = None
        for stage in self._stages:
            arguments = batch.arguments if stage.is_first else (self._received(stage, batch, here),)
            result = stage.module(*arguments, **batch.named)
            if stage.is_last:
                outputs = result
            else:
                here = self._sent(stage, result)
        return outputs

    def _received(
        self, stage: VirtualStage, batch: Batch, here: torch.Tensor | None
    ) -> torch.Tensor:
        """Return what the stage before has put out, which may be on this rank."""
        if here is not None:
            return here
        hidden = self._boundary.hidden_of(batch.first, self._device)
        group = self._mesh.axis(PIPELINE).get_group()
        distributed.recv(hidden, group=group, group_src=self._owners[stage.index - 1])
        return hidden

    def _sent(self, stage: VirtualStage, hidden: torch.Tensor) -> torch.Tensor | None:
        """Send what a stage has put out; return it where this rank has the next stage too."""
        owner = self._owners[stage.index + 1]
        if owner == self._mesh.stage:
            return hidden
        group = self._mesh.axis(PIPELINE).get_group()
        distributed.send(hidden.contiguous(), group=group, group_dst=owner)
        return None


def stage_owners(strategy: Strategy) -> Mapping[int, int]:
    """Return which rank of a pipeline holds each virtual stage."""
    ranks = range(strategy.pipeline_parallel_degree)
    return {stage: rank for rank in ranks for stage in held_stages(strategy, rank)}


@contextmanager
def forward_only(model: nn.Module) -> Iterator[None]:
    """Let `model` run without gradients and in evaluation mode, and be as it was behind that."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, is_training in modes.items():
            module.training = is_training
        _forget_forwards(model)


def _forget_forwards(model: nn.Module) -> None:
    """Free what FSDP has gathered, and the order in which it expects a backward to come.

    Parameters that stay gathered until a backward would hide what is loaded or updated meanwhile.
    """
    for module in model.modules():
        if not isinstance(module, FSDPModule):
            continue
        module.reshard()
        state = module._get_fsdp_state()  # noqa: SLF001 - torch has no public name for these
        state._comm_ctx.post_forward_order.clear()  # noqa: SLF001
        for group in parameter_groups(module):
            group._post_forward_indices.clear()  # noqa: SLF001
