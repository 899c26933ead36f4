"""Checkpoint record: the one small file that makes a saved step the checkpoint of its directory.

    directory/checkpoint.json            this record, of the newest step
    directory/step-00000012-1f2e3d4c/    its tensors, as torch.distributed.checkpoint writes them,
                                         and the record once more, which tells it from a half one

The record is written last and replaced at once, so that a run that dies while it saves leaves the
step that was saved before. It knows the size and the checksum of each file.
"""

from __future__ import annotations

import json
import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, JsonValue, ValidationError

from executor.errors import CheckpointError, CheckpointFilesError
from executor.replaced_file import replace_file
from planner.schema.complaints import complaint_words
from planner.schema.document import Count, Part

RECORD_NAME = "checkpoint.json"
_FOLDER_PATTERN = r"^step-\d{8,}-[0-9a-f]{8}$"
_READ_BYTES = 2**24
_RECORD_BYTES_LIMIT = 2**28


class FileSum(Part):
    """Size and CRC-32 of one file, and the CRC-32 of each tensor in it by its offset in bytes.

    Files that earlier releases wrote have no sums by tensor.
    """

    size_bytes: Count
    crc32: Count
    tensors: dict[int, Count] = Field(default_factory=dict)


class CheckpointRecord(Part):
    """What a saved step is: where its tensors are, and all that is no tensor.

    `parameters` has the shape of every parameter and persistent buffer by the unsplit model's
    names; `batches` are the global batches that were taken from loaders, of `batch_size` sequences;
    `extra` is what the script gave.
    """

    format: Literal["meshwright-checkpoint"] = "meshwright-checkpoint"
    version: Literal[1] = 1
    folder: Annotated[str, Field(pattern=_FOLDER_PATTERN)]
    step: Count
    batches: Count
    batch_size: Count | None = None
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
        raise no_checkpoint(directory, f"{place}: {complaint_words(first)[0]}") from None


def record_of_step(directory: Path, step: int) -> CheckpointRecord:
    """Return the record of the newest checkpoint of `step` that is kept in `directory`.

    Raises:
        CheckpointError: if there is none, naming the steps that there are.
    """
    kept = kept_steps(directory)
    if found := [folder for saved, folder in kept if saved == step]:
        return read_record(found[-1])
    steps = ", ".join(str(saved) for saved in sorted({saved for saved, _ in kept}))
    raise CheckpointError(
        f"holds no checkpoint of this step, but of {steps or 'none'}",
        field="step",
        value=step,
        remedy=f"give a step that was kept in {directory}, or leave it out for the newest",
    )


def kept_steps(directory: Path) -> list[tuple[int, Path]]:
    """Return the steps whose folders are whole, in order, and those of one step as written."""
    records = directory.glob(f"step-*-*/{RECORD_NAME}")
    found = sorted((path.stat().st_mtime_ns, path.parent) for path in records)
    return sorted(
        ((int(folder.name.split("-")[1]), folder) for _, folder in found), key=lambda item: item[0]
    )


def write_record(directory: Path, record: CheckpointRecord) -> None:
    """Make `record` the checkpoint of `directory`, whole or not at all."""
    text = json.dumps(record.model_dump(mode="json"), indent=1)
    replace_file(directory / record.folder / RECORD_NAME, text)
    replace_file(directory / RECORD_NAME, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Which checkpoints stay: the last `last`, and those of steps that `every` divides.

    Raises:
        CheckpointError: if a number is less than 1.
    """

    last: int = 1
    every: int | None = None

    def __post_init__(self) -> None:
        for field, value in (("keep", self.last), ("keep_every", self.every)):
            if value is not None and value < 1:
                raise CheckpointError(
                    "must be at least 1",
                    field=field,
                    value=value,
                    remedy="leave it out to keep the newest checkpoint alone",
                )

    def stays(self, steps: list[int], step: int) -> bool:
        """Return whether the checkpoint of `step` stays, of those of `steps`, in order."""
        is_among_last = step in sorted(set(steps))[-self.last :]
        return is_among_last or (self.every is not None and step % self.every == 0)


def remove_others(directory: Path, kept: str, retention: Retention) -> None:
    """Remove saved steps that `retention` lets go, and what no record was written of."""
    whole = kept_steps(directory)
    newest = {step: folder.name for step, folder in whole}
    steps = sorted(newest)
    staying = {newest[step] for step in steps if retention.stays(steps, step)} | {kept}
    for path in directory.glob("step-*-*"):
        if path.is_dir() and path.name not in staying:
            shutil.rmtree(path, ignore_errors=True)


def check_files(directory: Path, record: CheckpointRecord, *, part: int, parts: int) -> None:
    """Return if every `parts`-th file of a record is what was written.

    Of one whose tensors have sums, which `CheckpointReader` holds them to, that is its size.

    Raises:
        CheckpointError: naming the first that is not.
    """
    for name in sorted(record.files)[part::parts]:
        path = directory / record.folder / name
        if Path(name).name != name or not path.is_file():
            raise damaged(directory, f"{name} is missing")
        if not _is_whole(path, record.files[name]):
            raise not_as_written(directory, name)


def no_checkpoint(directory: Path, reason: str) -> CheckpointFilesError:
    """Return the error that `directory` holds nothing that could be loaded."""
    return CheckpointFilesError(
        f"holds no complete checkpoint: {reason}",
        field="directory",
        value=str(directory),
        remedy="give a directory that trainer.save() wrote",
    )


def damaged(directory: Path, reason: str) -> CheckpointFilesError:
    """Return the error that the files of a checkpoint are not what was saved."""
    return CheckpointFilesError(
        f"holds a damaged checkpoint: {reason}",
        field="directory",
        value=str(directory),
        remedy="load another checkpoint, or copy this one again from where it was saved",
    )


def not_as_written(directory: Path, name: str) -> CheckpointFilesError:
    """Return the error that the file `name` of a checkpoint is another than was saved."""
    return damaged(directory, f"{name} is not what was written")


def _is_whole(path: Path, saved: FileSum) -> bool:
    if path.stat().st_size != saved.size_bytes:
        return False
    return bool(saved.tensors) or _crc32(path) == saved.crc32


def _crc32(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while piece := file.read(_READ_BYTES):
            crc = zlib.crc32(piece, crc)
    return crc
