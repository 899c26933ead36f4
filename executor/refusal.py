"""Refusal: what the same launch would be refused with again, left for whoever starts it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from executor.errors import (
    CheckpointError,
    CheckpointFilesError,
    LaunchError,
    ModelMismatchError,
    RefusedError,
    UnsupportedPlanError,
    WeightFilesError,
    WeightsError,
)
from executor.replaced_file import replace_file
from executor.variables import REFUSAL_PATH
from planner.errors import DocumentError, MeshwrightError

_OF_WHAT_IS_GIVEN = (
    UnsupportedPlanError,
    ModelMismatchError,
    DocumentError,
    CheckpointError,
    WeightsError,
)
_OF_FILES = (CheckpointFilesError, WeightFilesError)


def is_lasting(error: MeshwrightError) -> bool:
    """Return whether `error` is of what the launch was given, and of no passing state.

    A device, a disk, a folder or a peer may be there the next time.
    """
    if isinstance(error, RefusedError):
        return error.is_lasting
    is_of_script = isinstance(error, LaunchError) and error.field == "script"
    is_given = isinstance(error, _OF_WHAT_IS_GIVEN) and not isinstance(error, _OF_FILES)
    return is_of_script or is_given


def leave_refusal(message: str, variables: Mapping[str, str]) -> None:
    """Write `message` where the environment says, if it says so."""
    if path := variables.get(REFUSAL_PATH):
        replace_file(Path(path), f"{message}\n")
