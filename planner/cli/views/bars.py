"""Bars of block characters."""

from __future__ import annotations

from rich.text import Text

_EIGHTHS = "▏▎▍▌▋▊▉"
BAR_COLUMNS = 20


def bar(ratio: float, *, style: str = "cyan") -> Text:
    """Return a bar for `ratio` (0..1; more is drawn as full) to an eighth of a column."""
    eighths = round(min(max(ratio, 0.0), 1.0) * BAR_COLUMNS * 8)
    whole, rest = divmod(eighths, 8)
    return Text("█" * whole + (_EIGHTHS[rest - 1] if rest else ""), style=style)
