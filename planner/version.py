"""The planner's version, as plans record it."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def planner_version() -> str:
    """Return the version of the installed distribution."""
    return metadata.version("meshwright")
