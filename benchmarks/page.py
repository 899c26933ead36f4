"""Pages of docs that commands fill: what was measured, put between marks of its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "planning-speed.md"
PICTURE = DOCS / "planning-speed.svg"


def put(mark: str, lines: Iterable[str], *, page: Path | None = None) -> None:
    """Replace what stands between the mark's begin and end, on docs/planning-speed.md or `page`.

    Raises:
        ValueError: if the page has no such marks.
    """
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    page = page or PAGE
    head, found, rest = page.read_text().partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page} has no marks {begin} and {end}")
    text = "\n".join(lines)
    page.write_text(f"{head}{begin}\n{text}\n{end}{tail}")
