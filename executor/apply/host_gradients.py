"""Host gradients: what micro-batches add up for parameters that are offloaded.

torch copies the first gradient of a step to pinned memory, beside the rest of backward. Each later
one it copies to memory that is not, at a thirtieth of the rate (3.2 s for 4.6 GiB on an H200), and
waits to add it. Here the gradient of each micro-batch is a first one, and they are added when its
backward is over.

Source: `foreach_reduce` in torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from executor.host_memory import like, plain


class HostGradients:
    """Sums of the gradients of those parameters of FSDP's groups that lie on the host."""

    def __init__(self, groups: Iterable[Any]) -> None:
        self._parameters = [
            item for group in groups for item in group.fsdp_params if item.offload_to_cpu
        ]
        self._sums: dict[torch.Tensor, torch.Tensor] = {}
        self._is_last = True

    def before_backward(self, *, is_last: bool) -> None:
        """Expect the gradients of one micro-batch, the step's last or another."""
        self._is_last = is_last

    def after_backward(self) -> None:
        """Add what has come to the sums; after the last micro-batch they are the gradients."""
        for item in self._parameters:
            if item.grad_offload_event is not None:
                item.grad_offload_event.synchronize()
                item.grad_offload_event = None
            self._add(item.sharded_param)

    def _add(self, parameter: torch.Tensor) -> None:
        known = self._sums.pop(parameter, None)
        if parameter.grad is not None:
            come = plain(parameter.grad)
            known = come if known is None else known.add_(come)
        if known is None:
            return
        if self._is_last:
            parameter.grad = like(known, parameter)
        else:
            self._sums[parameter] = known
            parameter.grad = None
