"""Open files: what Python holds back of them is written before a process is killed."""

from __future__ import annotations

import gc
import io
import threading
from contextlib import suppress

_SECONDS = 2.0


def flush_open_files() -> None:
    """Flush all files that this process writes to, as far as that takes moments.

    It is for the end of a process that runs no more Python: a file that another thread is writing
    to, or whose disk does not answer, is left.
    """
    flushing = threading.Thread(target=_flush, name="flush", daemon=True)
    flushing.start()
    flushing.join(_SECONDS)


def _flush() -> None:
    for item in gc.get_objects():
        # `isinstance` would ask proxies among them for their class.
        if issubclass(type(item), io.TextIOWrapper | io.BufferedWriter | io.BufferedRandom):
            with suppress(OSError, ValueError):  # full, or closed
                item.flush()
