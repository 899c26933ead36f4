"""Except hook: one line of one rank where a script that any launcher started is refused.

Of ranks that waited in vain each says who had begun fewer steps, beside its traceback. The others
are told of the error, so that they end at once when torchrun ends them for it.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from types import TracebackType

from executor.ending import Ending
from executor.failure import is_timeout
from planner.errors import MeshwrightError


def speak_once(ending: Ending | None = None) -> None:
    """Have this process end with one line, of one rank, on an error of ours; others as ever."""
    sys.excepthook = partial(_hook, ending)


def _hook(
    ending: Ending | None,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
) -> None:
    if ending is not None and issubclass(kind, Exception):
        ending.tell_failure()
    if not issubclass(kind, MeshwrightError):
        sys.__excepthook__(kind, error, trace)
        words = ending.behind_words() if ending is not None and is_timeout(str(error)) else ""
        if words:
            print(f"error: waited in vain: {words}", file=sys.stderr, flush=True)  # noqa: T201
        return
    if _speaks():
        print(f"error: {error}", file=sys.stderr, flush=True)  # noqa: T201 - all that a person sees


def _speaks() -> bool:
    """Return whether this rank says what all are refused with.

    Under torchrun it is the first of a node, since that ends the others: their folder marks it.
    """
    is_first = os.environ.get("RANK", "0") == "0"
    place = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not place:
        return is_first
    try:
        (Path(place).parent.parent / "meshwright-refusal").touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:
        return is_first
    return True
