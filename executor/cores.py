"""Cores: which of a host's cores a CPU rank keeps to.

Left to itself a system moves ranks about, so that now and then three of them share one core and
one has another to itself, and all wait for the slowest.
"""

from __future__ import annotations

import os


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
