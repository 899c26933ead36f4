"""Usage: which parameters a step has used, as ranks agree that average their gradients.

A parameter that nothing on a rank has used in a step (an expert without tokens, a branch not taken)
has no gradient there. The rank reduces zeros in its place, so that collectives match. Where no rank
has used it there is no gradient in the end, as in plain torch: optimizers then pass it over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial

from executor.apply.replicate import late_gradient
from executor.host_memory import hold, plain

_UNUSED, _USED, _USED_IN_PART = 0, 1, 2


class Reduced(Protocol):
    """Parameters whose gradients are reduced together."""

    @property
    def unused(self) -> set[nn.Parameter]:
        """Return those that this rank has not used in this step."""

    def trained(self) -> Sequence[nn.Parameter]:
        """Return those that are trained, in the same order on all ranks."""


class Usage:
    """Which parameters the ranks of `data` have used; those average the gradients of `reduced`."""

    def __init__(self, data: DeviceMesh, reduced: Iterable[Reduced]) -> None:
        self._data = data
        self._reduced = tuple(reduced)
        self._uses = torch.empty(0)
        self._work: distributed.Work | None = None

    def ask(self) -> None:
        """Begin to ask which parameters other ranks have used; a collective call."""
        unused = self._unused()
        mine = [_UNUSED if item in unused else _use(item) for item in self._trained()]
        self._uses = torch.tensor(mine, dtype=torch.int32, device=self._data.device_type)
        if self._data.size() > 1 and mine:
            group = self._data.get_group()
            largest = distributed.ReduceOp.MAX
            self._work = distributed.all_reduce(self._uses, largest, group, async_op=True)

    def settle(self) -> None:
        """Take zeros away that stand for a gradient which no rank has.

        Only a rank that has reduced zeros reads the answer.
        """
        if self._work is not None:
            self._work.wait()
            self._work = None
        unused = self._unused()
        if not unused:
            return
        for parameter, use in zip(self._trained(), self._uses.tolist(), strict=True):
            if use == _UNUSED:
                parameter.grad = None
            elif use == _USED_IN_PART and parameter in unused:
                _make_partial(parameter)

    def _trained(self) -> list[nn.Parameter]:
        return [item for part in self._reduced for item in part.trained()]

    def _unused(self) -> set[nn.Parameter]:
        return {item for part in self._reduced for item in part.unused}


class ShardedGradients:
    """Gradients of one of FSDP's groups of parameters: zeros where this rank has none.

    torch's own zeros (`set_reduce_scatter_unused_params`) are in the format of the parameters, and
    cannot be reduced beside gradients that were added up in another.
    """

    def __init__(self, group: Any) -> None:
        self._group = group
        self._used: set[nn.Parameter] = set()
        self._post_backward = group.post_backward
        group.post_backward = self._complete

    @property
    def unused(self) -> set[nn.Parameter]:
        """Return those that this rank has not used in this step."""
        return set(self.trained()) - self._used

    def trained(self) -> Sequence[nn.Parameter]:
        """Return those that are trained, in the same order on all ranks."""
        return [item.sharded_param for item in self._group.fsdp_params if _is_trained(item)]

    def begin(self) -> None:
        """Forget the last step.

        Raises:
            UnsupportedPlanError: if gradients have come after it was reduced.
        """
        self._used.clear()
        for item in self._group.fsdp_params:
            whole = getattr(item, "_unsharded_param", None)
            is_left = whole is not None and whole.grad is not None
            if is_left or item.unsharded_accumulated_grad is not None:
                raise late_gradient(item.sharded_param)

    def _complete(self, *_: Any) -> None:
        """Note what has a gradient, give zeros to all else that is reduced, and let FSDP go on."""
        gathered = [
            item
            for item in self._group.fsdp_params
            if _is_trained(item) and hasattr(item, "_unsharded_param")
        ]
        for item in gathered:
            if item.unsharded_accumulated_grad is not None or item.unsharded_param.grad is not None:
                self._used.add(item.sharded_param)
            elif self._group.reduce_grads:
                item.unsharded_param.grad = torch.zeros_like(item.unsharded_param)
        if any(item.unsharded_accumulated_grad is not None for item in gathered):
            for item in gathered if self._group.reduce_grads else ():
                item.accumulate_unsharded_grad_if_needed()
                item.to_accumulated_grad_if_needed()
        self._post_backward()
        hold(
            item.sharded_param.grad
            for item in self._group.fsdp_params
            if item.offload_to_cpu and item.sharded_param.grad is not None
        )


def _is_trained(fsdp_parameter: Any) -> bool:
    return bool(fsdp_parameter.sharded_param.requires_grad)


def _use(parameter: nn.Parameter) -> int:
    gradient = parameter.grad
    is_partial = isinstance(gradient, DTensor) and any(
        item.is_partial() for item in gradient.placements
    )
    return _USED_IN_PART if is_partial else _USED


def _make_partial(parameter: nn.Parameter) -> None:
    """Let a gradient that began as zeros be a sum still to be done, as it is on other ranks."""
    gradient = parameter.grad
    assert isinstance(gradient, DTensor)  # noqa: S101 - as it is on the ranks that used it
    placements = [Partial() if item.is_replicate() else item for item in gradient.placements]
    parameter.grad = DTensor.from_local(
        plain(gradient), gradient.device_mesh, placements, run_check=False
    )
