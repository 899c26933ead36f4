"""Checkpoint: parameters and optimizer states under the unsplit model's names, for any layout.

What `optimizer_fn` sets (learning rate, betas) is the script's to state and is not stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from executor.apply.materialise import unsplit_name
from executor.errors import CheckpointError
from executor.models.declaration import ModelDeclaration
from executor.updates import Update

_METADATA_FILE = ".metadata"


def save_checkpoint(
    directory: Path,
    model: nn.Module,
    updates: Sequence[Update],
    *,
    declaration: ModelDeclaration,
) -> None:
    """Write this rank's shards to `directory`; a collective call."""
    state: dict[str, torch.Tensor] = {}
    for name, parameter, kept in _owned(model, updates, declaration):
        state[_parameter_key(name)] = parameter.detach()
        for kind, value in kept.optimizer.state.get(kept.parameter, {}).items():
            if isinstance(value, torch.Tensor):
                state[_optimizer_key(name, kind)] = value
    save(state, checkpoint_id=directory)


def load_checkpoint(
    directory: Path,
    model: nn.Module,
    updates: Sequence[Update],
    *,
    declaration: ModelDeclaration,
) -> None:
    """Read this rank's shards from `directory`; a collective call.

    Raises:
        CheckpointError: if `directory` holds no complete checkpoint of this model.
    """
    stored = _stored_tensors(directory)
    state: dict[str, torch.Tensor] = {}
    for name, parameter, kept in _owned(model, updates, declaration):
        _check_stored(directory, stored, name, parameter)
        state[_parameter_key(name)] = parameter.detach()
        empty = _empty_states(stored, name, kept.parameter)
        kept.optimizer.state[kept.parameter] = empty
        for kind, value in empty.items():
            state[_optimizer_key(name, kind)] = value
    load(state, checkpoint_id=directory)
    for update in updates:
        update.parameters_changed()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """An optimizer, and what it takes for a parameter."""

    optimizer: torch.optim.Optimizer
    parameter: nn.Parameter


def _owned(
    model: nn.Module, updates: Sequence[Update], declaration: ModelDeclaration
) -> Iterator[tuple[str, nn.Parameter, _Kept]]:
    """Yield this rank's parameters with their names in the unsplit model and their states."""
    kept = {
        parameter: _Kept(optimizer=update.optimizer, parameter=taken)
        for update in updates
        for parameter, taken in update.pairs()
    }
    for name, parameter in model.named_parameters():
        yield unsplit_name(name, declaration), parameter, kept[parameter]


def _parameter_key(name: str) -> str:
    return f"model.{name}"


def _optimizer_key(name: str, kind: str) -> str:
    return f"optimizer.{name}.{kind}"


def _stored_tensors(directory: Path) -> dict[str, TensorStorageMetadata]:
    if not (directory / _METADATA_FILE).is_file():
        raise CheckpointError(
            "holds no complete checkpoint",
            field="directory",
            value=str(directory),
            remedy="give a directory that trainer.save() wrote",
        )
    metadata: Metadata = FileSystemReader(directory).read_metadata()
    return {
        key: item
        for key, item in metadata.state_dict_metadata.items()
        if isinstance(item, TensorStorageMetadata)
    }


def _check_stored(
    directory: Path,
    stored: dict[str, TensorStorageMetadata],
    name: str,
    parameter: nn.Parameter,
) -> None:
    item = stored.get(_parameter_key(name))
    if item is None or item.size != parameter.shape:
        found = "nothing" if item is None else f"a tensor of shape {list(item.size)}"
        raise CheckpointError(
            f"holds {found} for {name}, which has shape {list(parameter.shape)}",
            field="directory",
            value=str(directory),
            remedy="load a checkpoint of the same model",
        )


def _empty_states(
    stored: dict[str, TensorStorageMetadata], name: str, parameter: nn.Parameter
) -> dict[str, torch.Tensor]:
    """Return tensors to read the parameter's stored optimizer states into.

    States of the parameter's shape are sharded as it is; others (the step count) are whole.
    """
    prefix = _optimizer_key(name, "")
    states: dict[str, torch.Tensor] = {}
    for key, item in stored.items():
        kind = key.removeprefix(prefix)
        if not key.startswith(prefix) or "." in kind:
            continue
        dtype = item.properties.dtype
        if item.size == parameter.shape:
            states[kind] = torch.zeros_like(parameter.detach(), dtype=dtype)
        else:
            states[kind] = torch.zeros(item.size, dtype=dtype)
    return states
