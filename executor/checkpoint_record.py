"""Checkpoint record: the one small file that makes a saved step the checkpoint of its directory.

    directory/checkpoint.json            this record
    directory/step-00000012-1f2e3d4c/    its tensors, as torch.distributed.checkpoint writes them

The record is written last and replaced at once, so that a run that dies while it saves leaves the
step that was saved before. It knows the size and the checksum of each file.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, JsonValue, ValidationError

from executor.errors import CheckpointError
from planner.schema.document import Count, Part

RECORD_NAME = "checkpoint.json"
_FOLDER_PATTERN = r"^step-\d{8,}-[0-9a-f]{8}$"
_READ_BYTES = 2**24
_RECORD_BYTES_LIMIT = 2**28


class FileSum(Part):
    """Size and CRC-32 of one file."""

    size_bytes: Count
    crc32: Count


class CheckpointRecord(Part):
    """What a saved step is: where its tensors are, and all that is no tensor.

    `parameters` has every parameter's shape by the unsplit model's names; `batches` are the global
    batches that were taken from loaders; `extra` is what the script gave.
    """

    format: Literal["meshwright-checkpoint"] = "meshwright-checkpoint"
    version: Literal[1] = 1
    folder: Annotated[str, Field(pattern=_FOLDER_PATTERN)]
    step: Count
    batches: Count
    parameters: dict[str, tuple[int, ...]]
    optimizers: tuple[str, ...]
    files: dict[str, FileSum]
    loss_scale: float | None = None
    good_steps: Count = 0
    extra: dict[str, JsonValue] = Field(default_factory=dict)


def read_record(directory: Path) -> CheckpointRecord:
    """Return the record of the checkpoint in `directory`.

    Raises:
        CheckpointError: if there is none, or it cannot be read.
    """
    path = directory / RECORD_NAME
    if not path.is_file():
        raise no_checkpoint(directory, f"has no {RECORD_NAME}")
    if path.stat().st_size > _RECORD_BYTES_LIMIT:
        raise no_checkpoint(directory, f"has a {RECORD_NAME} too large to be one")
    try:
        return CheckpointRecord.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or RECORD_NAME
        raise no_checkpoint(directory, f"{place}: {first['msg']}") from None


def write_record(directory: Path, record: CheckpointRecord) -> None:
    """Make `record` the checkpoint of `directory`, whole or not at all."""
    draft = directory / f"{RECORD_NAME}.draft"
    with draft.open("w", encoding="utf-8") as file:
        json.dump(record.model_dump(mode="json"), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, directory / RECORD_NAME)  # noqa: PTH105
    _sync(directory)


def remove_others(directory: Path, kept: str) -> None:
    """Remove saved steps that no record names any more."""
    for path in directory.glob("step-*-*"):
        if path.is_dir() and path.name != kept:
            shutil.rmtree(path, ignore_errors=True)


def file_sums(folder: Path, *, part: int, parts: int) -> dict[str, FileSum]:
    """Return the sums of every `parts`-th file of `folder`, beginning with number `part`."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    return {name: _file_sum(folder / name) for name in names[part::parts]}


def check_files(directory: Path, record: CheckpointRecord, *, part: int, parts: int) -> None:
    """Return if every `parts`-th file of a record is what was written.

    Raises:
        CheckpointError: naming the first that is not.
    """
    for name in sorted(record.files)[part::parts]:
        path = directory / record.folder / name
        if Path(name).name != name or not path.is_file():
            raise damaged(directory, f"{name} is missing")
        if _file_sum(path) != record.files[name]:
            raise damaged(directory, f"{name} is not what was written")


def no_checkpoint(directory: Path, reason: str) -> CheckpointError:
    """Return the error that `directory` holds nothing that could be loaded."""
    return CheckpointError(
        f"holds no complete checkpoint: {reason}",
        field="directory",
        value=str(directory),
        remedy="give a directory that trainer.save() wrote",
    )


def damaged(directory: Path, reason: str) -> CheckpointError:
    """Return the error that the files of a checkpoint are not what was saved."""
    return CheckpointError(
        f"holds a damaged checkpoint: {reason}",
        field="directory",
        value=str(directory),
        remedy="load another checkpoint, or copy this one again from where it was saved",
    )


def _file_sum(path: Path) -> FileSum:
    crc, size = 0, 0
    with path.open("rb") as file:
        while piece := file.read(_READ_BYTES):
            crc, size = zlib.crc32(piece, crc), size + len(piece)
    return FileSum(size_bytes=size, crc32=crc)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
