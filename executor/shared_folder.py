"""Shared folder: a directory that all ranks of one run write to."""

from __future__ import annotations

import shutil
import time
import uuid
from contextlib import suppress
from functools import partial
from pathlib import Path

from torch import distributed

from executor.agreement import from_first_rank, together
from executor.errors import CheckpointFilesError
from executor.folder_lock import hold
from planner.units import format_bytes

# Network file systems may show a new file a moment later.
_SEEN_SECONDS = 10.0


def check_shared(directory: Path, group: distributed.ProcessGroup | None = None) -> None:
    """Make `directory` this run's, and return if all ranks see there what rank 0 writes.

    On nodes with a disk of their own each would keep a part of every checkpoint, and none could be
    loaded once a node is gone.

    Raises:
        CheckpointFilesError: if a rank does not, nothing can be written there, or another run saves
            there.
    """
    probe = directory / from_first_rank(f".shared-{uuid.uuid4().hex}", group=group)
    failed = partial(not_written, directory)
    try:
        together(lambda: _write_probe(probe), failed, group=group)
        together(lambda: _see_probe(probe), failed, group=group)
    finally:
        if distributed.get_rank() == 0:
            with suppress(OSError):
                probe.unlink(missing_ok=True)


def not_written(directory: Path, reason: str) -> CheckpointFilesError:
    """Return the error that a save to `directory` went wrong for `reason`."""
    try:
        room = f" with {format_bytes(shutil.disk_usage(directory).free)} free there"
    except OSError:
        room = ""
    return CheckpointFilesError(
        f"cannot be written{room}: {reason}",
        field="directory",
        value=str(directory),
        remedy="give a directory with room that every rank can write to; what was saved there "
        "before is untouched",
    )


def _write_probe(probe: Path) -> None:
    if distributed.get_rank() == 0:
        probe.parent.mkdir(parents=True, exist_ok=True)
        hold(probe.parent)
        probe.touch()


def _see_probe(probe: Path) -> None:
    until = time.monotonic() + _SEEN_SECONDS
    while not probe.exists():
        if time.monotonic() > until:
            raise CheckpointFilesError(
                f"is not the same on all nodes: rank {distributed.get_rank()} does not see what "
                "rank 0 wrote",
                field="directory",
                value=str(probe.parent),
                remedy="give a directory that all nodes share, such as the checkpoint_folder of "
                "agents on a shared file system",
            )
        time.sleep(0.1)
