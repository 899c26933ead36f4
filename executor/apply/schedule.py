"""Schedules: forward and backward of all micro-batches of one step, with one mean loss.

`Sequential` is a lone stage; the others run torch's pipeline schedules. Each divides the loss by
the number of micro-batches, so that gradients are those of the mean.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import nn
from torch.distributed.pipelining import (
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleZBVZeroBubble,
)

from executor.apply.boundary import StageBoundary
from executor.apply.pipeline_stage import SyncedStage
from executor.apply.rank_sharing_stage import RankSharingStage
from executor.apply.tied import TiedPair
from executor.apply.virtual_stages import VirtualStage
from executor.apply.zero import GradientSync
from executor.batch import Batch
from executor.errors import UnsupportedPlanError
from executor.masking import MicroBatch
from executor.mesh import RankMesh
from executor.models.declaration import ModelDeclaration
from planner.schema.plan import Plan
from planner.schema.strategy import PipelineSchedule

MicroBatchLoss = Callable[[Any, MicroBatch], torch.Tensor]
_OTHER_SIZES = "must match the size of tensor"
_SHARDED_BESIDE_WHOLE = "got mixed torch.Tensor and DTensor"
_OF_ONE_STAGE = {
    PipelineSchedule.GPIPE: ScheduleGPipe,
    PipelineSchedule.ONE_F_ONE_B: Schedule1F1B,
}
_OF_SEVERAL_STAGES = {
    PipelineSchedule.INTERLEAVED: ScheduleInterleaved1F1B,
    PipelineSchedule.ZB_V: ScheduleZBVZeroBubble,
    PipelineSchedule.DUALPIPE_V: ScheduleDualPipeV,
}


# An error in a stage is raised and told by us; torch logs the orders of all ranks with it.
logging.getLogger("torch.distributed.pipelining.schedules").setLevel(logging.CRITICAL)


class Schedule(Protocol):
    """Runs one step's forwards and backwards."""

    def run(self, micro_batches: Sequence[MicroBatch]) -> torch.Tensor | None:
        """Return the mean loss of this rank's sequences, `None` off the last stage."""


def schedule_of(
    plan: Plan,
    stages: Sequence[VirtualStage],
    *,
    declaration: ModelDeclaration,
    mesh: RankMesh,
    device: torch.device,
    loss_function: MicroBatchLoss,
) -> Schedule:
    """Return the plan's schedule of a rank's stages."""
    strategy = plan.strategy
    if strategy.pipeline_parallel_degree == 1:
        (only,) = stages
        return Sequential(
            only.module,
            loss_function=loss_function,
            gradient_sync=only.gradient_sync,
            splits_sequence=strategy.sequence_parallel,
        )
    boundary = StageBoundary.of(plan, declaration.shapes.hidden_size)
    kind = SyncedStage if len(stages) == 1 else RankSharingStage
    return Pipelined(
        [kind(stage, mesh=mesh, device=device, boundary=boundary) for stage in stages],
        loss_function=loss_function,
        schedule=strategy.pipeline_schedule,
        micro_batch_count=strategy.micro_batch_count or 1,
        tied=TiedPair.of(
            stages, declaration=declaration, strategy=strategy, mesh=mesh, device=device
        ),
    )


class Sequential:
    """Micro-batches one after another on a lone stage."""

    def __init__(
        self,
        model: nn.Module,
        *,
        loss_function: MicroBatchLoss,
        gradient_sync: GradientSync,
        splits_sequence: bool = False,
    ) -> None:
        self._model = model
        self._loss_function = loss_function
        self._gradient_sync = gradient_sync
        self._splits_sequence = splits_sequence

    def run(self, micro_batches: Sequence[MicroBatch]) -> torch.Tensor:
        """Return the mean loss of this rank's sequences."""
        losses = []
        count = len(micro_batches)
        for index, micro_batch in enumerate(micro_batches):
            batch = micro_batch.batch
            # Outputs have no name here: they would be kept until the next, through all of backward.
            loss = self._loss_function(self._outputs(batch), micro_batch) / count
            self._gradient_sync.before_backward(is_last=index == count - 1)
            loss.backward()  # type: ignore[no-untyped-call]
            self._gradient_sync.after_backward()
            losses.append(loss.detach())
        self._gradient_sync.finish()
        return torch.stack(losses).sum()

    def _outputs(self, batch: Batch) -> Any:
        try:
            return self._model(*batch.arguments, **batch.named)
        except RuntimeError as error:
            if self._splits_sequence and _OTHER_SIZES in str(error):
                raise UnsupportedPlanError(
                    "gives each rank its own tokens but in modules that are declared to gather "
                    "them, and forward puts sizes together that differ then",
                    field="strategy.sequence_parallel",
                    value=str(error).splitlines()[0],
                    remedy="declare gathered={...} of modules that need all tokens and hand on "
                    "their own alone, or plan with sequence_parallel false",
                ) from error
            if _SHARDED_BESIDE_WHOLE not in str(error):
                raise
            raise UnsupportedPlanError(
                "shards a parameter of a declared part, which forward uses outside of that part",
                field="declaration",
                value=str(error).splitlines()[0],
                remedy="use parameters in the forward of the part that has them, or leave that "
                "part out of the declaration",
            ) from error


class Pipelined:
    """The stages of a rank under one of torch's pipeline schedules."""

    def __init__(
        self,
        stages: Sequence[SyncedStage],
        *,
        loss_function: MicroBatchLoss,
        schedule: PipelineSchedule,
        micro_batch_count: int,
        tied: TiedPair,
    ) -> None:
        self._stages = list(stages)
        self._tied = tied
        self._micro_batches: Sequence[MicroBatch] = ()
        self._schedule = self._made(
            schedule,
            n_microbatches=micro_batch_count,
            loss_fn=lambda outputs, index: (
                loss_function(outputs, self._micro_batches[int(index)]) / micro_batch_count
            ),
            scale_grads=False,
        )

    def run(self, micro_batches: Sequence[MicroBatch]) -> torch.Tensor | None:
        """Return the mean loss of this rank's sequences on the last stage, else `None`.

        Stages take what they need of a micro-batch from here: all ranks of a pipeline have the same
        sequences. torch's schedules are told micro-batches by number, in place of targets.
        """
        self._micro_batches = micro_batches
        for stage in self._stages:
            stage.take(micro_batches)
        losses: list[torch.Tensor] = []
        if any(stage.is_last for stage in self._stages):
            numbers = torch.arange(len(micro_batches))
            self._schedule.step(target=numbers, losses=losses, return_outputs=False)
        else:
            self._schedule.step(return_outputs=False)
        self._micro_batches = ()
        for stage in self._stages:
            stage.finish()
        self._tied.sum_gradients()
        if not losses:
            return None
        return torch.stack([loss.detach() for loss in losses]).sum()

    def _made(self, schedule: PipelineSchedule, **arguments: Any) -> Any:
        if schedule in _OF_ONE_STAGE:
            (stage,) = self._stages
            return _OF_ONE_STAGE[schedule](stage, **arguments)
        made = _OF_SEVERAL_STAGES[schedule](list(self._stages), **arguments)
        for stage in self._stages:
            if isinstance(stage, RankSharingStage):
                stage.expect(made.pipeline_order)
        return made
