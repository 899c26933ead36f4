"""Pipeline stage: torch's stage, with gradients reduced and buffers held as the plan has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining._backward import stage_backward

from executor.apply.boundary import StageBoundary
from executor.apply.divided_backward import DividedBackward
from executor.apply.virtual_stages import VirtualStage
from executor.masking import MicroBatch
from executor.mesh import PIPELINE, RankMesh
from planner.schema.strategy import ActivationCheckpointing


class SyncedStage(PipelineStage):
    """A stage whose gradients are reduced when its ZeRO stages say, not all at the end.

    torch's own stage forbids every FSDP module to reduce or reshard until the last micro-batch,
    which makes ZeRO-2 and ZeRO-3 hold whole gradients. It also keeps buffers to receive into for
    all micro-batches of a step; here there are only those of micro-batches in flight.

    Where blocks are checkpointed the backward is not divided: its first part would compute them
    again, and its second part once more for each of their matrices. Nor is it under ZeRO-3, where
    the second part would have to gather all weights again. The first part is then the whole, and
    nothing is left for the second.
    """

    def __init__(
        self,
        stage: VirtualStage,
        *,
        mesh: RankMesh,
        device: torch.device,
        boundary: StageBoundary,
    ) -> None:
        super().__init__(
            _Hidden(stage.module),
            stage.index,
            stage.count,
            device,
            input_args=boundary.inputs(is_first=stage.is_first),
            output_args=boundary.outputs(is_last=stage.is_last),
            group=mesh.axis(PIPELINE).get_group(),
        )
        self._module = stage.module
        self._gradient_sync = stage.gradient_sync
        self._divided = DividedBackward(stage.module, stage.gradient_sync)
        is_whole = _recomputes(stage) or stage.gradient_sync.frees_parameters
        self._is_divisible = stage.is_first or not is_whole
        self._backward_count = 0
        self._micro_batches: Sequence[MicroBatch] = ()

    def take(self, micro_batches: Sequence[MicroBatch]) -> None:
        """Take what the stage needs of the next step's micro-batches: masks, positions, tokens."""
        self._micro_batches = micro_batches

    def forward_one_chunk(
        self,
        fwd_chunk_id: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None = None,
        save_forward_output: bool = True,
    ) -> Any:
        """Return the output of a micro-batch, of which torch's schedules know the number alone."""
        del args, kwargs
        batch = self._micro_batches[fwd_chunk_id].batch
        arguments = batch.arguments if self.is_first else ()
        with _own_errors():
            return super().forward_one_chunk(
                fwd_chunk_id, arguments, dict(batch.named), save_forward_output
            )

    def forward_maybe_with_nosync(self, *args: Any, **kwargs: Any) -> Any:
        """Return the module's output; what is sent is no view, which could not be detached."""
        output = self.submod(*args, **kwargs)
        is_sent_view = not self.is_last and isinstance(output, torch.Tensor) and output._is_view()  # noqa: SLF001
        return output.clone() if is_sent_view else output

    def backward_one_chunk(
        self,
        bwd_chunk_id: int,
        loss: torch.Tensor | None = None,
        full_backward: bool = True,
        last_backward: bool = False,
    ) -> None:
        """Run the backward of a micro-batch, or its first part where it is divided."""
        if not self._is_divisible:
            # The schedule calls that one last whose weight gradients are, which is too late here.
            self._backward_count += 1
            full_backward, last_backward = True, self._backward_count == self.chunks
        with _own_errors():
            super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)
        if loss is not None:
            # The schedule keeps losses until the step's end; their graphs would keep the inputs.
            loss.detach_()

    def backward_weight_one_chunk(
        self,
        bwd_chunk_id: int,
        last_backward: bool = False,
    ) -> None:
        """Run the second part of a divided backward."""
        if self._is_divisible:
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward)

    def backward_maybe_with_nosync(
        self, backward_type: str, bwd_kwargs: dict[str, Any], last_backward: bool = False
    ) -> tuple[Any, Any]:
        """Return the gradients of the stage's inputs, and what is left of a divided backward."""
        match backward_type:
            case "full":
                return self._whole_backward(bwd_kwargs, is_last=last_backward), None
            case "input":
                return self._divided.of_inputs(
                    bwd_kwargs["stage_output"],
                    bwd_kwargs["output_grads"],
                    bwd_kwargs["input_values"],
                )
            case _:
                self._divided.of_weights(bwd_kwargs["param_groups"], is_last=last_backward)
                return (), None

    def perform_reduce_grad(self, grad_scale_factor: int) -> None:
        """Do nothing: each backward has already reduced what it should."""

    def clear_runtime_states(self) -> None:
        """Forget the last step."""
        super().clear_runtime_states()
        self._backward_count = 0

    def finish(self) -> None:
        """Wait for gradient reductions that are still under way."""
        self._micro_batches = ()
        self._gradient_sync.finish()

    def _whole_backward(self, arguments: dict[str, Any], *, is_last: bool) -> Any:
        self._gradient_sync.before_backward(is_last=is_last)
        if isinstance(self._module, FSDPModule):
            # With several micro-batches in flight, FSDP must remember the order of their forwards
            # until the last backward, or it gathers parameters ahead that no one asks for.
            self._module.set_is_last_backward(is_last)
        gradients = stage_backward(
            arguments["stage_output"], arguments["output_grads"], arguments["input_values"]
        )
        self._gradient_sync.after_backward()
        return gradients

    # Buffers to receive into: made when a receive begins, given up when its content is taken.

    def _setup_forward_recv_info(self, num_microbatches: int, has_backward: bool) -> None:
        super()._setup_forward_recv_info(num_microbatches, has_backward)
        _drop_buffers(self.args_recv_info)

    def _setup_backward_recv_info(self, num_microbatches: int) -> None:
        super()._setup_backward_recv_info(num_microbatches)
        _drop_buffers(self.grad_recv_info)

    def _get_recv_ops(self, recv_infos: tuple[Any, ...], *group: Any) -> list[distributed.P2POp]:
        # torch 2.14 names the group, 2.13 has the stage's own
        for info in recv_infos:
            if info.tensor_meta is not None and not info.is_root_arg:
                info.buffer = _empty(info.tensor_meta, self.device)
        return super()._get_recv_ops(recv_infos, *group)

    def _retrieve_recv_activations(self, fwd_chunk_id: int) -> Any:
        activations = super()._retrieve_recv_activations(fwd_chunk_id)
        _drop_buffers({fwd_chunk_id: self.args_recv_info[fwd_chunk_id]})
        return activations

    def _retrieve_recv_grads(self, bwd_chunk_id: int) -> Any:
        gradients = super()._retrieve_recv_grads(bwd_chunk_id)
        _drop_buffers({bwd_chunk_id: self.grad_recv_info[bwd_chunk_id]})
        return gradients


class _Hidden(nn.Module):
    """A module in a plain one, so that torch's schedules leave to us what FSDP should do when.

    They would gather all parameters of a stage before its first micro-batch.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """Return what the module returns."""
        return self.module(*arguments, **named)


@contextmanager
def _own_errors() -> Iterator[None]:
    """Let the model's own errors pass, which torch puts behind one that only names the tensors."""
    try:
        yield
    except RuntimeError as error:
        if error.__cause__ is None:
            raise
        raise error.__cause__ from None


def _recomputes(stage: VirtualStage) -> bool:
    return any(
        group.activation_checkpointing is not ActivationCheckpointing.NONE
        for group in stage.plan.layers
    )


def _drop_buffers(infos: dict[int, tuple[Any, ...]]) -> None:
    for received in infos.values():
        for info in received:
            info.buffer = None


def _empty(meta: Any, device: torch.device) -> torch.Tensor:
    return torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype, device=device)
