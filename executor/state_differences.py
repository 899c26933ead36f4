"""State differences: where model states lie and in which format, compared with the plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import nn

from executor.host_memory import is_held, plain
from executor.updates import Residence, Update
from planner.schema.strategy import Offload

_NOTHING: frozenset[Offload] = frozenset()


def state_differences(
    model: nn.Module, updates: Iterable[Update], residences: Iterable[Residence]
) -> Iterator[str]:
    """Yield a sentence for each parameter or optimizer state that is not where or what is planned.

    Before the first step there are no states to compare.
    """
    planned = {
        parameter: residence.offload
        for residence in residences
        for module in residence.modules
        for parameter in module.parameters()
    }
    kept = {
        parameter: update.optimizer.state.get(taken, {})
        for update in updates
        for parameter, taken in update.pairs()
    }
    for name, parameter in model.named_parameters():
        offload = planned.get(parameter, _NOTHING)
        yield from _differences(name, parameter, is_planned=Offload.PARAMETERS in offload)
        for kind, value in kept.get(parameter, {}).items():
            # Counts of steps are no state that anyone offloads.
            if isinstance(value, torch.Tensor) and value.dim() > 0:
                is_planned = Offload.OPTIMIZER in offload
                yield from _differences(f"{kind} of {name}", value, is_planned=is_planned)


def _differences(name: str, tensor: torch.Tensor, *, is_planned: bool) -> Iterator[str]:
    if tensor.is_floating_point() and tensor.dtype is not torch.float32:  # packed ones are bytes
        yield f"{name} is kept in {tensor.dtype}, planned torch.float32"
    if is_held(plain(tensor).untyped_storage()) is not is_planned:
        places = ("the device", "the host") if is_planned else ("the host", "the device")
        yield f"{name} lies on {places[0]}, planned on {places[1]}"
