"""Machine: what the numbers were measured on, so that they can be read elsewhere."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("numpy", "pulp", "highspy", "pydantic")


def machine() -> dict[str, Any]:
    """Return processor, cores, load, memory, versions and the time, for JSON."""
    return {
        "processor": _processor(),
        "core_count": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2),
        "memory_gib": _memory_gib(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in _PACKAGES},
        "measured_at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def machine_line(facts: dict[str, Any]) -> str:
    """Return the machine in one line."""
    return (
        f"{facts['processor']}, {facts['core_count']} cores (load {facts['load_average']}), "
        f"{facts['memory_gib']} GiB; Python {facts['python']}, numpy {facts['numpy']}, "
        f"HiGHS {facts['highspy']}, PuLP {facts['pulp']}; {facts['measured_at']}"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else "unknown processor"


def _memory_gib() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
