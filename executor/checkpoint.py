"""Checkpoint: a training run on disk, from which any layout can go on.

Parameters, buffers and optimizer states are stored under the unsplit model's names, as are the
settings of optimizers' groups: they go on as `load_state_dict` has it, learning rates too. All
functions are collective calls, and an error on one rank is raised on all.
"""

from __future__ import annotations

import copy
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch import distributed, nn
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from executor.agreement import everyone, from_first_rank, together
from executor.apply.materialise import unsplit_name
from executor.averages import Averages
from executor.buffers import Buffers
from executor.checkpoint_reader import CheckpointReader
from executor.checkpoint_record import (
    CheckpointRecord,
    FileSum,
    Retention,
    check_files,
    damaged,
    no_checkpoint,
    read_record,
    record_of_step,
    remove_others,
    write_record,
)
from executor.checkpoint_writer import CheckpointWriter
from executor.errors import CheckpointError
from executor.host_memory import HOST
from executor.models.declaration import ModelDeclaration
from executor.optimizer_state import empty_states, not_saved, plain_states, restore_plain_states
from executor.optimizers import member_names
from executor.script_state import ScriptState
from executor.shared_folder import check_shared, not_written
from executor.updates import Update

_LOADER_STATE = "loader.pt"
_STATES = "states.pt"
_OPTIMIZER = "optimizer."
_AVERAGE = "average."


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run has come: steps, global batches taken, and what else goes on from there.

    Each of the `batches` had `batch_size` sequences, but for a loader's last; `passed` tells them
    from others.

    `extra` is the script's own: numbers, text, lists and mappings of these.
    """

    step: int = 0
    batches: int = 0
    batch_size: int | None = None
    loss_scale: float | None = None
    good_steps: int = 0
    loader_state: dict[str, Any] | None = None
    passed: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a rank trains: model, buffers, optimizers with their states, and what a script keeps."""

    model: nn.Module
    updates: Sequence[Update]
    declaration: ModelDeclaration
    buffers: Buffers
    script: ScriptState
    averages: Averages = field(default_factory=Averages)

    def optimizer_names(self) -> list[str]:
        """Return the classes of this rank's optimizers."""
        return sorted({name for update in self.updates for name in member_names(update.optimizer)})

    def parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield parameters by their names in the unsplit model."""
        for name, parameter in self.model.named_parameters():
            yield unsplit_name(name, self.declaration), parameter

    def named(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield parameters and persistent buffers by their names in the unsplit model."""
        yield from self.parameters()
        yield from self.buffers.named()

    def optimized(self) -> Iterator[tuple[str, nn.Parameter, torch.optim.Optimizer]]:
        """Yield the names of parameters that are trained, with what optimizers take for them."""
        taken = {
            parameter: (optimized, update.optimizer)
            for update in self.updates
            for parameter, optimized in update.pairs()
        }
        for name, parameter in self.parameters():
            if parameter in taken:
                yield name, *taken[parameter]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What of a rank is written, and what its record says of it."""

    tensors: dict[str, torch.Tensor]
    parameters: dict[str, tuple[int, ...]]
    optimizers: list[str]
    states: dict[str, Any]
    progress: Progress

    @staticmethod
    def of(trained: Trained, progress: Progress) -> Snapshot:
        """Return this rank's part, whose tensors the next step changes; a collective call.

        `states` are all ranks', and nothing changes them any more.
        """
        trained.buffers.agree()
        return Snapshot(
            states=copy.deepcopy({**_states(trained), "data": progress.passed}),
            tensors=_written_tensors(trained),
            parameters=_shapes(trained),
            optimizers=trained.optimizer_names(),
            progress=progress,
        )


def save_checkpoint(
    directory: Path,
    snapshot: Snapshot,
    retention: Retention,
    *,
    group: distributed.ProcessGroup | None = None,
) -> None:
    """Write a step to `directory` and make it the newest checkpoint there.

    A collective call of `group`, which has all ranks.

    Raises:
        CheckpointError: if it cannot be written; the last checkpoint is then untouched.
    """
    step = snapshot.progress.step
    folder = from_first_rank(f"step-{step:08d}-{uuid.uuid4().hex[:8]}", group=group)
    try:
        _save(directory / folder, snapshot, retention, group)
    except CheckpointError:
        # What is half written would take the room that the next one needs.
        if _rank() == 0:
            shutil.rmtree(directory / folder, ignore_errors=True)
        raise


def load_checkpoint(directory: Path, trained: Trained, *, step: int | None = None) -> Progress:
    """Read this rank's shards from `directory`; return how far the run had come.

    It is the newest checkpoint there, or that of `step`.

    Raises:
        CheckpointError: if `directory` holds no complete checkpoint of this model and optimizer.
    """
    unreadable = partial(no_checkpoint, directory)
    record: CheckpointRecord = together(
        lambda: read_record(directory) if step is None else record_of_step(directory, step),
        unreadable,
    )
    broken = partial(damaged, directory)
    together(lambda: check_files(directory, record, part=_rank(), parts=_ranks()), broken)
    shapes = _merged(everyone(_shapes(trained)))
    optimizers = {name for names in everyone(trained.optimizer_names()) for name in names}
    together(lambda: _check_same(directory, record, shapes, optimizers), broken)
    read = together(lambda: _read(directory, record, trained), broken)
    together(lambda: _take(read, trained), broken)
    return Progress(
        step=record.step,
        batches=record.batches,
        batch_size=record.batch_size,
        loss_scale=record.loss_scale,
        good_steps=record.good_steps,
        loader_state=read.loader_state,
        passed=read.states["data"],
        extra=record.extra,
    )


def _save(
    path: Path,
    snapshot: Snapshot,
    retention: Retention,
    group: distributed.ProcessGroup | None,
) -> None:
    directory, progress = path.parent, snapshot.progress
    failed = partial(not_written, directory)
    check_shared(directory, group)
    together(lambda: path.mkdir(parents=True, exist_ok=True), failed, group=group)
    written = together(lambda: _written_files(path, snapshot, group), failed, group=group)
    sums = everyone(written, group=group)
    optimizers = everyone(snapshot.optimizers, group=group)
    record = CheckpointRecord(
        folder=path.name,
        step=progress.step,
        batches=progress.batches,
        batch_size=progress.batch_size,
        parameters=_merged(everyone(snapshot.parameters, group=group)),
        optimizers=tuple(sorted({name for names in optimizers for name in names})),
        files=_merged(sums),
        loss_scale=progress.loss_scale,
        good_steps=progress.good_steps,
        extra=dict(progress.extra),
    )
    together(lambda: _commit(directory, record, retention), failed, group=group)


def _written_tensors(trained: Trained) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = {}
    for name, tensor in trained.named():
        state[_parameter_key(name)] = tensor.detach()
    for name, taken, optimizer in trained.optimized():
        for kind, value in optimizer.state.get(taken, {}).items():
            if isinstance(value, torch.Tensor):
                state[_optimizer_key(name, kind)] = value
    for name, average in trained.averages.named():
        state[f"{_AVERAGE}{name}"] = average
    return state


def _written_files(
    path: Path, snapshot: Snapshot, group: distributed.ProcessGroup | None
) -> dict[str, FileSum]:
    """Write this rank's part, and return the files that it is in."""
    writer = CheckpointWriter(path)
    save(snapshot.tensors, storage_writer=writer, process_group=group)
    beside = {_STATES: snapshot.states}
    if snapshot.progress.loader_state is not None:
        beside[_LOADER_STATE] = snapshot.progress.loader_state
    for name, content in beside.items() if _rank() == 0 else ():
        with writer.files.create_stream(path / name, "wb") as file:
            torch.save(content, cast("IO[bytes]", file))
    return writer.files.sums


def _states(trained: Trained) -> dict[str, Any]:
    """Return what is kept beside tensors by parameter, of all ranks; a collective call."""
    mine = together(lambda: plain_states(trained.optimized()), not_saved)
    return {
        "optimizer": _merged(everyone(mine)),
        "script": trained.script.gathered(),
        "averages": trained.averages.state(),
    }


def _stored_states(path: Path) -> dict[str, Any]:
    """Return what was saved beside tensors of parameters; of earlier releases, nothing."""
    states: dict[str, Any] = {"optimizer": {}, "script": {"kept": {}, "generators": []}}
    if (path / _STATES).is_file():
        states = torch.load(path / _STATES, map_location=HOST, weights_only=True)
    return {"averages": {}, "data": None, **states}


def _restore_states(states: dict[str, Any], trained: Trained) -> None:
    trained.averages.restore(states["averages"])
    restore_plain_states(trained.optimized(), states["optimizer"])
    trained.script.restore(states["script"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What of a checkpoint is for this rank, before the run has any of it."""

    tensors: dict[str, torch.Tensor]
    optimizer: list[tuple[str, nn.Parameter, torch.optim.Optimizer, dict[str, torch.Tensor]]]
    states: dict[str, Any]
    loader_state: dict[str, Any] | None


def _read(directory: Path, record: CheckpointRecord, trained: Trained) -> _Read:
    """Read this rank's part beside what the run has, which a damaged checkpoint leaves as it is.

    That takes parameters, buffers and averages once more while it lasts: less than gradients take.
    """
    path = directory / record.folder
    reader, states = CheckpointReader(directory, record), _stored_states(path)
    trained.averages.check_saved(states["averages"])
    stored = _states_by_parameter(reader.tensors())
    tensors = {key: torch.empty_like(tensor) for key, tensor in _taking(trained)}
    optimizer = [
        (name, taken, own, empty_states(stored.get(name, {}), taken, own))
        for name, taken, own in trained.optimized()
    ]
    for name, _, _, empty in optimizer:
        tensors |= {_optimizer_key(name, kind): value for kind, value in empty.items()}
    load(tensors, storage_reader=reader)
    loader_state = None
    if (path / _LOADER_STATE).is_file():
        loader_state = torch.load(path / _LOADER_STATE, weights_only=True)
    return _Read(tensors=tensors, optimizer=optimizer, states=states, loader_state=loader_state)


def _take(read: _Read, trained: Trained) -> None:
    """Go on with what was read."""
    for key, tensor in _taking(trained):
        tensor.copy_(read.tensors[key])
    for name, taken, own, states in read.optimizer:
        own.state.pop(taken, None)
        for kind, value in states.items():
            value.copy_(read.tensors[_optimizer_key(name, kind)])
            own.state[taken][kind] = value
    for update in trained.updates:
        update.parameters_changed()
    _restore_states(read.states, trained)


def _taking(trained: Trained) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield parameters, buffers and averages by key, twice of a tied weight with two copies."""
    for name, tensor in trained.named():
        yield _parameter_key(name), tensor.detach()
    for name, average in trained.averages.named():
        yield f"{_AVERAGE}{name}", average


def _commit(directory: Path, record: CheckpointRecord, retention: Retention) -> None:
    if _rank() == 0:
        write_record(directory, record)
        remove_others(directory, record.folder, retention)


def _check_same(
    directory: Path,
    record: CheckpointRecord,
    shapes: dict[str, tuple[int, ...]],
    optimizers: set[str],
) -> None:
    """Return if a record is of the same model and optimizer.

    Raises:
        CheckpointError: naming the first parameter or optimizer that is not the same.
    """
    for name in sorted(shapes.keys() | record.parameters.keys()):
        found, wanted = record.parameters.get(name), shapes.get(name)
        if found == wanted:
            continue
        has = "nothing" if found is None else f"a tensor of shape {list(found)}"
        here = (
            "which the model does not have" if wanted is None else f"which has shape {list(wanted)}"
        )
        raise CheckpointError(
            f"holds {has} for {name}, {here}",
            field="directory",
            value=str(directory),
            remedy="load a checkpoint of the same model",
        )
    if set(record.optimizers) != optimizers:
        raise CheckpointError(
            f"holds the states of {', '.join(record.optimizers)}, and the script's optimizer is "
            f"{', '.join(sorted(optimizers))}",
            field="directory",
            value=str(directory),
            remedy="go on with the optimizer that the checkpoint was saved with",
        )


def _states_by_parameter(
    stored: dict[str, TensorStorageMetadata],
) -> dict[str, dict[str, TensorStorageMetadata]]:
    """Return what is stored of optimizer states, by parameter and kind."""
    states: dict[str, dict[str, TensorStorageMetadata]] = {}
    for key, item in stored.items():
        name, _, kind = key.removeprefix(_OPTIMIZER).rpartition(".")
        if key.startswith(_OPTIMIZER):
            states.setdefault(name, {})[kind] = item
    return states


def _shapes(trained: Trained) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in trained.named()}


def _merged(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part.items()}


def _parameter_key(name: str) -> str:
    return f"model.{name}"


def _optimizer_key(name: str, kind: str) -> str:
    return f"{_OPTIMIZER}{name}.{kind}"


def _rank() -> int:
    return distributed.get_rank()


def _ranks() -> int:
    return distributed.get_world_size()
