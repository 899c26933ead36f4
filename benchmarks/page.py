"""The page docs/planning-speed.md: what a command measured, put between marks of its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "planning-speed.md"
PICTURE = DOCS / "planning-speed.svg"


def put(mark: str, lines: Iterable[str]) -> None:
    """Replace what stands between the mark's begin and end.

    Raises:
        ValueError: if the page has no such marks.
    """
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    head, found, rest = PAGE.read_text().partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{PAGE} has no marks {begin} and {end}")
    text = "\n".join(lines)
    PAGE.write_text(f"{head}{begin}\n{text}\n{end}{tail}")
