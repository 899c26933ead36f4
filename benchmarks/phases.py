"""Phases: where the planner's wall time goes, by looking at its stack every few milliseconds."""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

SAMPLE_SECONDS = 0.02
DRIVING_MODULES = frozenset({"planning", "objectives", "inquiry"})
DRIVERS = frozenset({"search", "_refine", "_refine_one", "solve"})


@contextmanager
def sampled_phases() -> Iterator[Counter[str]]:
    """Fill a counter with seconds by phase while the block runs.

    A phase is the first function of the planner below those that only drive it. A look is counted
    with all the time since the one before, so that native code that cannot be interrupted is
    charged to who called it. On systems without interval timers the counter stays empty.
    """
    seconds: Counter[str] = Counter()
    last = time.perf_counter()

    def look(_: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.perf_counter()
        seconds[phase_of(frame)] += now - last  # type: ignore[assignment]
        last = now

    if not hasattr(signal, "setitimer"):
        yield seconds
        return
    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, SAMPLE_SECONDS, SAMPLE_SECONDS)
    try:
        yield seconds
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        look(0, sys._getframe())  # noqa: SLF001 - the only way to one's own stack


def phase_of(frame: FrameType | None) -> str:
    """Return the phase that a stack is in: `module.function` below what drives."""
    names: list[tuple[str, str]] = []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if "planner" in path.parts:
            names.append((path.stem, frame.f_code.co_name))
        frame = frame.f_back
    for module, function in reversed(names):
        if module not in DRIVING_MODULES and function not in DRIVERS:
            return f"{module}.{function}"
    return "planning" if names else "outside"
