"""Backward in two parts: gradients of a stage's inputs at once, those of its weights later.

Zero-bubble schedules send the first part on and fill idle time with the second. torch divides the
graph, and writes weight gradients past autograd's accumulators: the hooks by which FSDP and
replicas reduce gradients never run. So the reductions are called here, after the second part, as
each part's ZeRO stage asks.

Whole parameters must stay from forward to the second part: torch knows gradients by the tensors
that forward used, and some operators (layer norms) want weights even for the weights' gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from executor.apply.parameter_groups import parameter_groups
from executor.apply.zero import GradientSync

ParameterGroups = list[dict[str, Any]]
Gradients = tuple[torch.Tensor | None, ...]


class DividedBackward:
    """The two parts of the backward of one stage's module."""

    def __init__(self, module: nn.Module, gradient_sync: GradientSync) -> None:
        self._module = module
        self._gradient_sync = gradient_sync

    def of_inputs(
        self,
        outputs: list[torch.Tensor],
        output_gradients: list[torch.Tensor] | None,
        inputs: list[Any],
    ) -> tuple[Gradients, ParameterGroups]:
        """Return the gradients of `inputs`, and what `of_weights` needs later."""
        self._gradient_sync.before_input_gradients()
        if isinstance(self._module, FSDPModule):
            self._module.set_is_last_backward(is_last_backward=False)
        weights = self._module.parameters()
        return stage_backward_input(outputs, output_gradients, inputs, weights)

    def of_weights(self, groups: ParameterGroups, *, is_last: bool) -> None:
        """Add the weights' gradients to theirs, and reduce what is to be reduced by now."""
        stage_backward_weight(self._module.parameters(), groups)
        self._gradient_sync.before_backward(is_last=is_last)
        if isinstance(self._module, FSDPModule):
            _run_post_backward(self._module, is_last=is_last)
        self._gradient_sync.after_backward()


def _run_post_backward(root: Any, *, is_last: bool) -> None:
    """Do what FSDP's hooks do at the end of a backward that autograd has seen."""
    root.set_is_last_backward(is_last)
    for group in reversed(list(_fsdp_groups(root))):
        group.post_backward()
    root._get_fsdp_state()._root_post_backward_final_callback()  # noqa: SLF001


def _fsdp_groups(module: nn.Module) -> Iterator[Any]:
    """Yield FSDP's groups of parameters under `module`, each once, in the order of the chain."""
    seen: set[int] = set()
    for submodule in module.modules():
        if not isinstance(submodule, FSDPModule):
            continue
        # torch's own stages reach for the same: there is no public way to reduce by hand.
        for group in parameter_groups(submodule):
            if id(group) not in seen:
                seen.add(id(group))
                yield group
