"""Optimizer state: tensors beside a parameter, settings of its group, counts, and the like.

Optimizers of other layouts hold other parameters in their groups. So what a group says is kept by
the names of its parameters, and given to whatever group these are in when a run goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.utils._pytree import tree_leaves

from executor.errors import CheckpointError
from executor.host_memory import HOST, plain

Named = Iterable[tuple[str, nn.Parameter, torch.optim.Optimizer]]

# How a step is computed is for the device at hand to say, and for the script.
_OF_THE_DEVICE = frozenset({"params", "param_names", "foreach", "fused", "capturable"})


def plain_states(optimized: Named) -> dict[str, dict[str, Any]]:
    """Return for each parameter what its group says, and its states that are no tensors.

    Raises:
        CheckpointError: if an optimizer keeps what cannot be kept by parameters.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, parameter, optimizer, group in _with_groups(optimized):
        _check_keys(optimizer)
        states = optimizer.state.get(parameter, {})
        values = {key: item for key, item in states.items() if not isinstance(item, torch.Tensor)}
        for key, item in values.items():
            if any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(item)):
                raise _unsaved(optimizer, f"{key}, a {type(item).__qualname__} of tensors")
        said = {key: item for key, item in group.items() if key not in _OF_THE_DEVICE}
        found[name] = {"group": said, "values": values}
    return found


def restore_plain_states(optimized: Named, stored: Mapping[str, Mapping[str, Any]]) -> None:
    """Give groups and parameters what `plain_states` returned for them.

    Raises:
        CheckpointError: if parameters of one group were in groups that say different things.
    """
    first: dict[int, tuple[str, Any]] = {}
    for name, parameter, optimizer, group in _with_groups(optimized):
        if name not in stored:
            continue
        said = stored[name]["group"]
        known_as, known = first.setdefault(id(group), (name, said))
        if not _equal(known, said):
            raise CheckpointError(
                f"holds {known_as} and {name} in groups of other settings, which "
                f"{type(optimizer).__qualname__} has in one",
                field="optimizer_function",
                value=name,
                remedy="divide parameters into the groups that the checkpoint was saved with",
            )
        group.update(said)
        if stored[name]["values"]:
            optimizer.state[parameter].update(stored[name]["values"])


def empty_states(
    stored: dict[str, TensorStorageMetadata],
    parameter: nn.Parameter,
    optimizer: torch.optim.Optimizer,
) -> dict[str, torch.Tensor]:
    """Return tensors to read the parameter's stored optimizer states into, by kind.

    States of the parameter's shape are sharded as it is; others are whole. They lie beside the
    parameter, but for the count of steps, which most optimizers keep on the host.

    Source: `torch.optim.Optimizer.load_state_dict` of torch 2.13, for where the count lies.
    """
    local = plain(parameter)
    counts_on_host = not any(
        group.get("fused") or group.get("capturable")
        for group in optimizer.param_groups
        if any(item is parameter for item in group["params"])
    )
    return {
        kind: torch.zeros_like(parameter.detach(), dtype=item.properties.dtype)
        if item.size == parameter.shape
        else torch.zeros(
            item.size,
            dtype=item.properties.dtype,
            device=HOST if kind == "step" and counts_on_host else local.device,
        )
        for kind, item in stored.items()
    }


def _with_groups(
    optimized: Named,
) -> Iterator[tuple[str, nn.Parameter, torch.optim.Optimizer, dict[str, Any]]]:
    groups: dict[nn.Parameter, dict[str, Any]] = {}
    for name, parameter, optimizer in optimized:
        if parameter not in groups:
            for group in optimizer.param_groups:
                groups.update(dict.fromkeys(group["params"], group))
        if parameter in groups:  # an optimizer may leave some out
            yield name, parameter, optimizer, groups[parameter]


def _check_keys(optimizer: torch.optim.Optimizer) -> None:
    for key in optimizer.state:
        if not isinstance(key, torch.Tensor):
            raise _unsaved(optimizer, f"{key!r}, of no parameter")
    if type(optimizer).state_dict is not torch.optim.Optimizer.state_dict:
        for extra in optimizer.state_dict().keys() - {"state", "param_groups"}:
            raise _unsaved(optimizer, f"{extra!r} beside its states and groups")


def not_saved(reason: str) -> CheckpointError:
    """Return the error that an optimizer's state cannot be had."""
    return CheckpointError(
        f"the state of an optimizer cannot be had: {reason}",
        field="optimizer_function",
        value="state",
        remedy="use an optimizer that keeps tensors and plain values by parameter and group",
    )


def _unsaved(optimizer: torch.optim.Optimizer, what: str) -> CheckpointError:
    return CheckpointError(
        f"the optimizer keeps {what}, which no other layout could take over",
        field="optimizer_function",
        value=type(optimizer).__qualname__,
        remedy="use an optimizer that keeps tensors and plain values by parameter and group",
    )


def _equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        bool(torch.equal(value, other[key]))
        if isinstance(value, torch.Tensor) and isinstance(other[key], torch.Tensor)
        else value == other[key]
        for key, value in one.items()
    )
