"""Outcome: what a rank leaves for the launcher: its report, or its error."""

from __future__ import annotations

from pathlib import Path

from executor.replaced_file import replace_file
from planner.schema.document import Part
from planner.schema.run import RankReport


class RankOutcome(Part):
    """How one rank ended. Exactly one of `report` and `error` is given.

    An error that `is_refusal` says field, value and remedy, and is every rank's alike; it
    `is_lasting` where the same launch would be refused again. A rank that `is_stopped` was asked to
    end before its script would have.
    """

    rank: int
    report: RankReport | None = None
    losses: tuple[float | None, ...] = ()
    backend: str = ""
    torch_version: str = ""
    error: str | None = None
    is_refusal: bool = False
    is_lasting: bool = False
    is_stopped: bool = False


def write_outcome(directory: Path, outcome: RankOutcome) -> None:
    """Write `outcome` whole or not at all: a rank may be killed at any time."""
    path = outcome_path(directory, outcome.rank)
    replace_file(path, outcome.model_dump_json(), is_synced=False)


def read_outcome(directory: Path, rank: int) -> RankOutcome | None:
    """Return what `rank` has left, `None` if it left nothing."""
    path = outcome_path(directory, rank)
    if not path.is_file():
        return None
    return RankOutcome.model_validate_json(path.read_bytes())


def outcome_path(directory: Path, rank: int) -> Path:
    """Return where `rank` leaves its outcome."""
    return directory / f"rank-{rank}.json"
