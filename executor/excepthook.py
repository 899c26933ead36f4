"""Except hook: one line on rank 0 where a script that any launcher started is refused."""

from __future__ import annotations

import os
import sys
from types import TracebackType

from planner.errors import MeshwrightError


def speak_once() -> None:
    """Have this process end with one line, said by rank 0, on an error of ours; others as ever."""
    sys.excepthook = _hook


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, MeshwrightError):
        sys.__excepthook__(kind, error, trace)
        return
    if os.environ.get("RANK", "0") == "0":
        print(f"error: {error}", file=sys.stderr, flush=True)  # noqa: T201 - all that a person sees
