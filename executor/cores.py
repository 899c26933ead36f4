"""Cores: which of a host's cores a CPU rank keeps to.

Left to itself a system moves ranks about, so that now and then three of them share one core and
one has another to itself, and all wait for the slowest.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import distributed

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_THREADS = Path("/proc/self/task")


def keep_apart() -> None:
    """Let this process run on its share of the cores that other ranks of its host may use too.

    A launcher that has bound each rank to cores of its own, as srun does, leaves none to share. All
    ranks of the initialised process group call it.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    mine = (_host(), sorted(os.sched_getaffinity(0)))
    everyone: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(everyone, mine)
    alike = [rank for rank, theirs in enumerate(everyone) if theirs == mine]
    cores = own_cores(mine[1], alike.index(distributed.get_rank()), len(alike))
    for thread in [path.name for path in _THREADS.iterdir()] if _THREADS.is_dir() else ["0"]:
        with suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread), cores)


def _host() -> str:
    """Return what is another on each host, and the same in all containers of one."""
    return _BOOT.read_text() if _BOOT.is_file() else socket.gethostname()


def keep_to_own_cores(local_rank: int, local_rank_count: int) -> None:
    """Let this process run on its share of the cores that it may use, where a system can do that.

    Threads that it starts from now on keep to them as well.
    """
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, own_cores(allowed, local_rank, local_rank_count))


def usable_core_count() -> int:
    """Return how many cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def own_cores(allowed: list[int], local_rank: int, local_rank_count: int) -> set[int]:
    """Return equal runs of `allowed` cores, one for each rank.

    Ranks that outnumber the cores take them in turn, so that neighbours lie apart.
    """
    share = len(allowed) // local_rank_count
    if share == 0:
        return {allowed[local_rank % len(allowed)]}
    return set(allowed[local_rank * share : (local_rank + 1) * share])
