"""The planner's version, as plans record it."""

from __future__ import annotations

from functools import cache


@cache
def planner_version() -> str:
    """Return the version of the installed distribution."""
    from importlib import metadata  # noqa: PLC0415  (it imports all of email)

    return metadata.version("meshwright")
