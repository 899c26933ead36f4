"""Measured runs from a JSON-lines file of any size, read line by line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from planner.errors import DocumentError
from planner.schema.document import DOCUMENT_BYTES_LIMIT, parse_fields
from planner.schema.files import check_kind, readable
from planner.schema.measured_run import MeasuredRun


def read_measured_runs(path: Path) -> Iterator[MeasuredRun]:
    """Yield the runs of the file at `path`, one a line; empty lines are passed over.

    A run with a bad field says so itself (`unreadable`).

    Raises:
        DocumentError: if the file cannot be read or has no run, or at the first line that is no
            JSON object, naming the line and the remedy.
    """
    found = False
    for number, line in _numbered_lines(path):
        source = f"{path} line {number}"
        try:
            run = MeasuredRun.from_fields(parse_fields(line, source=source), source=source)
        except DocumentError as error:
            raise _placed(error, number) from None
        found = True
        yield run
    if not found:
        raise DocumentError("holds no run", field=str(path), remedy="write one JSON object a line")


def run_count(path: Path) -> int:
    """Return how many lines of the file at `path` hold a run, without reading what they say.

    Raises:
        DocumentError: if the file cannot be read.
    """
    return sum(1 for _ in _numbered_lines(path))


def file_digest(path: Path) -> str:
    """Return the SHA-256 of the lines of the file at `path` that hold a run, in hexadecimal.

    Raises:
        DocumentError: if the file cannot be read.
    """
    digest = hashlib.sha256()
    for _, line in _numbered_lines(path):
        digest.update(line)
    return digest.hexdigest()


def _numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with readable(path):
        check_kind(path.stat().st_mode, path, pipes=False)  # it is read more than once
    with readable(path), path.open("rb") as lines:
        number = 0
        while line := lines.readline(DOCUMENT_BYTES_LIMIT + 1):
            number += 1
            if len(line) > DOCUMENT_BYTES_LIMIT:
                raise DocumentError(
                    f"is longer than {DOCUMENT_BYTES_LIMIT} bytes",
                    field=f"{path} line {number}",
                    remedy="write one run a line",
                )
            if line.strip():
                yield number, line


def _placed(error: DocumentError, number: int) -> DocumentError:
    """Return `error` with its line in the field's name, unless it stands there."""
    place = f"line {number}"
    field = error.field if place in error.field else f"{place}, {error.field}"
    return DocumentError(error.problem, field=field, value=error.value, remedy=error.remedy)
