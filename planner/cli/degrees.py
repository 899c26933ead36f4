"""Degrees as the command line writes them: `8`, or an interval `2..8`."""

from __future__ import annotations

import re

from planner.errors import InputError

_DEGREE = re.compile(r"(?P<min>\d{1,7})(\.\.(?P<max>\d{1,7}))?")


def is_degree_interval(text: str) -> bool:
    """Return whether `text` is an interval with both its ends, which no YAML value looks like."""
    match = _DEGREE.fullmatch(text.strip())
    return match is not None and match["max"] is not None


def degree_interval(text: str, *, field: str) -> dict[str, int]:
    """Return the interval of degrees that `8` or `2..8` stands for.

    Raises:
        InputError: if the text is neither.
    """
    match = _DEGREE.fullmatch(text.strip())
    if match is None:
        raise InputError(
            "is not a degree or an interval of degrees",
            field=field,
            value=text,
            remedy="write a positive whole number such as 8, or an interval such as 2..8",
        )
    low = int(match["min"])
    return {"min": low, "max": int(match["max"] or low)}
