"""Memory: the most that this process and its children had resident."""

from __future__ import annotations

import ctypes
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def reset_peak() -> bool:
    """Let the peak of this process start anew; return whether the system can.

    What the C library keeps of memory that was freed goes back to the system, so that the peak is
    that of what follows, as in a process of its own.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


def peak_resident_bytes() -> int:
    """Return the most that was resident since the start or the last reset.

    A solver that runs as a process of its own counts as well: the largest child's peak is added.
    """
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return _own_peak() + children * _UNIT


def _own_peak() -> int:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT


_UNIT = 1 if sys.platform == "darwin" else 1024
