"""Clocks: wall clocks that differ between processes and are set while they run."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

_SOURCE = Path(__file__).with_name("shifted_clock.c")


class Clock:
    """The wall clock of processes that run in its `environment`, some seconds off the machine's.

    Where there is no C compiler, or no Linux, it is the machine's own and cannot be set.
    """

    def __init__(self, folder: Path, name: str) -> None:
        """Keep the clock in `folder`, which whoever runs in its environment can read."""
        self._library = _library(folder)
        self._path = folder / name
        self.shift_seconds = 0.0
        self._path.write_bytes(struct.pack("d", 0.0))
        self._path.chmod(0o644)

    @property
    def can_be_set(self) -> bool:
        """Return whether setting it has any effect."""
        return self._library is not None

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables of processes that read this clock."""
        if self._library is None:
            return {}
        return {"LD_PRELOAD": str(self._library), "MESHWRIGHT_SHIFTED_CLOCK": str(self._path)}

    def set_by(self, seconds: float) -> None:
        """Move the clock on, or back, in one step."""
        self.shift_seconds += seconds
        with self._path.open("r+b") as file:
            file.write(struct.pack("d", self.shift_seconds))


def _library(folder: Path) -> Path | None:
    """Return the compiled library, `None` where it cannot be had."""
    made = folder / "shifted_clock.so"
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    if not made.exists():
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(made), str(_SOURCE)]
        subprocess.run(command, check=True, capture_output=True)
    return made
