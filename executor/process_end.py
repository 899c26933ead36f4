"""Process end: a rank ends as any Python process does, but not for ever.

Threads are joined, `atexit` handlers run and open files are flushed, as loggers and trackers count
on. What hangs then is told to the launcher, which has the rank's outcome already.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import sys
import threading
from pathlib import Path
from typing import NoReturn

from torch import distributed

from executor.variables import END_SECONDS

DEFAULT_END_SECONDS = 300.0
# As faulthandler writes threads: a line for each, then its frames, the innermost first.
_THREAD = re.compile(r"^(?:Current thread|Thread) .*$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+)', re.MULTILINE)
_LIBRARY = Path(threading.__file__).resolve().parent
_held_open: list[object] = []


def end_process(status: int, *, directory: Path, rank: int) -> NoReturn:
    """End this process with `status`; where that takes too long, leave word where it hangs.

    Groups are destroyed where all went well: gloo's threads have been seen to abort an interpreter
    that ends before them. After a failure a peer may never answer, and the kernel ends them.
    """
    place = hang_path(directory, rank).open("w", encoding="utf-8")
    _held_open.append(place)  # faulthandler writes to its descriptor, which must not be closed
    faulthandler.dump_traceback_later(_end_seconds(), exit=True, file=place)
    if status == 0 and distributed.is_initialized():
        distributed.destroy_process_group()
    if status != 0:
        sys.last_value = SystemExit(status)  # as of what nothing catches: trackers ask for it
    sys.exit(status)


def hang_path(directory: Path, rank: int) -> Path:
    """Return where a rank that hangs at its end leaves word."""
    return directory / f"rank-{rank}.hang"


def ended_badly(directory: Path, rank: int, exit_code: int) -> str:
    """Return how a rank ended after all that it had to do was done."""
    path = hang_path(directory, rank)
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    if text:
        places = [place for thread in _THREAD.split(text)[1:] if (place := _place(thread))]
        return (
            f"rank {rank} trained to its end, and its process did not end within "
            f"{_end_seconds():.0f} s after it ({END_SECONDS}): it was at "
            f"{'; '.join(places) or 'no line of Python'}"
        )
    how = f"exit status {exit_code}"
    if exit_code < 0:
        how = signal.Signals(-exit_code).name
    return f"rank {rank} trained to its end, and then ended with {how}"


def _place(thread: str) -> str | None:
    """Return where a thread is: at the innermost line that is not Python's own library's."""
    frames = [(Path(file), line) for file, line in _FRAME.findall(thread)]
    own = [frame for frame in frames if not frame[0].is_relative_to(_LIBRARY)]
    for file, line in (own or frames)[:1]:
        return f"{file.name}, line {line}"
    return None


def _end_seconds() -> float:
    return float(os.environ.get(END_SECONDS) or DEFAULT_END_SECONDS)
