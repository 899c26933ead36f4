"""Schedules: forward and backward of all micro-batches of one step, with one mean loss.

`Sequential` is a lone stage; the others run torch's pipeline schedules. Each divides the loss by
the number of micro-batches, so that gradients are those of the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.pipelining._backward import stage_backward

from executor.apply.zero import GradientSync
from executor.mesh import PIPELINE, RankMesh
from planner.schema.strategy import PipelineSchedule

LossFunction = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_SCHEDULES = {
    PipelineSchedule.GPIPE: ScheduleGPipe,
    PipelineSchedule.ONE_F_ONE_B: Schedule1F1B,
}


class Schedule(Protocol):
    """Runs one step's forwards and backwards."""

    def run(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor | None:
        """Return the mean loss of this rank's sequences, `None` off the last stage."""


class Sequential:
    """Micro-batches one after another on a lone stage."""

    def __init__(
        self,
        model: nn.Module,
        *,
        loss_function: LossFunction,
        gradient_sync: GradientSync,
        micro_batch_count: int,
    ) -> None:
        self._model = model
        self._loss_function = loss_function
        self._gradient_sync = gradient_sync
        self._micro_batch_count = micro_batch_count

    def run(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of this rank's sequences."""
        losses = []
        count = self._micro_batch_count
        pairs = zip(inputs.chunk(count), targets.chunk(count), strict=True)
        for index, (micro_inputs, micro_targets) in enumerate(pairs):
            loss = self._loss_function(self._model(micro_inputs), micro_targets) / count
            self._gradient_sync.before_backward(is_last=index == count - 1)
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        self._gradient_sync.finish()
        return torch.stack(losses).sum()


class Pipelined:
    """A pipeline stage under GPipe or 1F1B."""

    def __init__(
        self,
        stage: SyncedStage,
        *,
        loss_function: LossFunction,
        schedule: PipelineSchedule,
        micro_batch_count: int,
    ) -> None:
        self._stage = stage
        self._schedule = _SCHEDULES[schedule](
            stage,
            n_microbatches=micro_batch_count,
            loss_fn=lambda logits, targets: loss_function(logits, targets) / micro_batch_count,
            scale_grads=False,
        )

    def run(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor | None:
        """Return the mean loss of this rank's sequences on the last stage, else `None`."""
        arguments = (inputs,) if self._stage.is_first else ()
        losses: list[torch.Tensor] = []
        if self._stage.is_last:
            self._schedule.step(*arguments, target=targets, losses=losses, return_outputs=False)
        else:
            self._schedule.step(*arguments, return_outputs=False)
        self._stage.finish()
        if not losses:
            return None
        return torch.stack([loss.detach() for loss in losses]).sum()


class SyncedStage(PipelineStage):
    """A stage whose gradients are reduced when its ZeRO stages say, not all at the end.

    torch's own stage forbids every FSDP module to reduce or reshard until the last micro-batch,
    which makes ZeRO-2 and ZeRO-3 hold whole gradients.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        mesh: RankMesh,
        device: torch.device,
        gradient_sync: GradientSync,
        boundary: StageBoundary,
    ) -> None:
        super().__init__(
            model,
            mesh.stage,
            mesh.degrees[PIPELINE],
            device,
            input_args=boundary.inputs(is_first=mesh.is_first_stage),
            output_args=boundary.outputs(is_last=mesh.is_last_stage),
            group=mesh.axis(PIPELINE).get_group(),
        )
        self._gradient_sync = gradient_sync

    def backward_maybe_with_nosync(
        self, backward_type: str, bwd_kwargs: dict[str, Any], last_backward: bool = False
    ) -> tuple[Any, None]:
        """Return the gradients of the stage's inputs; `backward_type` is always "full" here."""
        assert backward_type == "full", backward_type  # noqa: S101
        self._gradient_sync.before_backward(is_last=last_backward)
        if isinstance(self.submod, FSDPModule):
            # With several micro-batches in flight, FSDP must remember the order of their forwards
            # until the last backward, or it gathers parameters ahead that no one asks for.
            self.submod.set_is_last_backward(last_backward)
        gradients = stage_backward(
            bwd_kwargs["stage_output"], bwd_kwargs["output_grads"], bwd_kwargs["input_values"]
        )
        return gradients, None

    def finish(self) -> None:
        """Wait for gradient reductions that are still under way."""
        self._gradient_sync.finish()

    def perform_reduce_grad(self, grad_scale_factor: int) -> None:
        """Do nothing: each backward has already reduced what it should."""


class StageBoundary:
    """Shapes at the ends of a stage for one micro-batch, so that torch need not trace them."""

    def __init__(
        self,
        *,
        micro_batch_size: int,
        sequence_length: int,
        local_sequence_length: int,
        hidden_size: int,
        dtype: torch.dtype,
    ) -> None:
        self._tokens = (micro_batch_size, sequence_length)
        self._hidden = (micro_batch_size, local_sequence_length, hidden_size)
        self._dtype = dtype

    def inputs(self, *, is_first: bool) -> torch.Tensor:
        """Return an example of what the stage receives, on the meta device."""
        if is_first:
            return torch.empty(self._tokens, dtype=torch.long, device="meta")
        return self._hidden_states()

    def outputs(self, *, is_last: bool) -> torch.Tensor:
        """Return an example of what the stage sends; the last one's stays with the loss."""
        return self._hidden_states() if not is_last else self._hidden_states().sum()

    def _hidden_states(self) -> torch.Tensor:
        return torch.empty(self._hidden, dtype=self._dtype, device="meta", requires_grad=True)
