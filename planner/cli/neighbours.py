"""Neighbours: other installed distributions that have files in our packages' folders.

pip does not ask before one distribution overwrites another's files, and takes them along when the
other is uninstalled. What then fails is told here. ADR 0011 says why the names are what they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata

OWN_PACKAGES = frozenset({"meshwright", "planner", "api", "executor", "profiles", "migrations"})
_OWN_NAME = "meshwright"


def neighbours(path: list[str] | None = None) -> tuple[tuple[str, str], ...]:
    """Return (package, distribution) for each that has files in one of our packages, sorted.

    `path` are the folders to look in, those of the interpreter unless told.
    """
    found = metadata.distributions() if path is None else metadata.distributions(path=path)
    return tuple(
        sorted(
            (package, distribution.name)
            for distribution in found
            if distribution.name and distribution.name.lower() != _OWN_NAME
            for package in _packages(distribution.files or ())
        )
    )


def neighbours_said(path: list[str] | None = None) -> str:
    """Return in words what else is installed in our packages, empty where nothing is."""
    shared = neighbours(path)
    if not shared:
        return ""
    who = ", ".join(f"{distribution} has files in `{package}`" for package, distribution in shared)
    return (
        f"{who}, a package of meshwright: install meshwright into an environment of its own, or "
        "uninstall the other and then reinstall meshwright"
    )


def _packages(files: Iterable[metadata.PackagePath]) -> frozenset[str]:
    return OWN_PACKAGES & {file.parts[0] for file in files if len(file.parts) > 1}
