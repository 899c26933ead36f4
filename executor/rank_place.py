"""Rank place: where a rank was when its run failed, for the launcher to name who did not come.

Ranks that wait are in torch; who did not come is elsewhere, or has begun fewer steps.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from executor.replaced_file import replace_file
from planner.schema.document import Part

_PACKAGE = Path(__file__).resolve().parent
_LIBRARY = Path(threading.__file__).resolve().parent
_WAITING = (
    f"torch{os.sep}distributed{os.sep}",
    f"torch{os.sep}autograd{os.sep}",
    f"torch{os.sep}cuda{os.sep}",
)


class RankPlace(Part):
    """The steps that a rank had begun, its script's line, and whether torch was waiting there."""

    rank: int
    begun_steps: int
    line: str
    is_waiting: bool


def main_thread_frames() -> list[traceback.FrameSummary]:
    """Return where this process's main thread is, the outermost frame first."""
    main = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001 - documented
    return [] if main is None else list(traceback.extract_stack(main))


def write_place(
    directory: Path,
    frames: list[traceback.FrameSummary],
    *,
    rank: int,
    begun_steps: int,
    has_waited: bool = False,
) -> None:
    """Leave word of a rank whose innermost frame is the last of `frames`.

    One that `has_waited` in vain was waiting there, whatever its frames are.
    """
    inner = list(reversed(frames))
    place = RankPlace(
        rank=rank,
        begun_steps=begun_steps,
        line=_script_line(inner) or "no line of Python",
        is_waiting=has_waited or _is_waiting(inner),
    )
    replace_file(directory / f"rank-{rank}.place", place.model_dump_json(), is_synced=False)


def read_places(directory: Path) -> list[RankPlace]:
    """Return what ranks of this node have left, by rank."""
    paths = directory.glob("rank-*.place")
    found = [RankPlace.model_validate_json(path.read_bytes()) for path in paths]
    return sorted(found, key=lambda place: place.rank)


def who_did_not_come(places: list[RankPlace]) -> list[RankPlace]:
    """Return the ranks for which all others wait: behind by a step, else not in torch."""
    if not places:
        return []
    steps = {place.begun_steps for place in places}
    behind = [place for place in places if place.begun_steps == min(steps)]
    if len(steps) == 1:
        behind = [place for place in places if not place.is_waiting]
    return behind if len(behind) < len(places) else []


def _script_line(inner: Sequence[traceback.FrameSummary]) -> str | None:
    """Return the innermost line that is neither ours nor of a library, else the innermost."""
    own = [frame for frame in inner if not _is_library(Path(frame.filename))]
    for frame in (own or inner)[:1]:
        return f"{Path(frame.filename).name}, line {frame.lineno}"
    return None


def _is_waiting(inner: Sequence[traceback.FrameSummary]) -> bool:
    """Return whether what the innermost line of the script called is torch that may wait."""
    called = takewhile(lambda frame: _is_library(Path(frame.filename)), inner)
    return any(mark in frame.filename for frame in called for mark in _WAITING)


def _is_library(file: Path) -> bool:
    resolved = file.resolve()
    return (
        str(file).startswith("<")
        or "site-packages" in resolved.parts
        or resolved.is_relative_to(_LIBRARY)
        or resolved.is_relative_to(_PACKAGE)
    )
