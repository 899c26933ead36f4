"""Local ranks: processes of this machine that run one function, such as a profiler's or trials'.

CPU ranks are forked, since importing torch takes each longer than what it is to measure; CUDA
cannot be used in a fork, so GPU ranks are started anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from torch.multiprocessing.spawn import ProcessException, start_processes

from executor.environment import LAUNCHER_PROCESS
from executor.errors import LaunchError
from executor.variables import PROGRESS_SECONDS


def run_local_ranks(
    function: Callable[[int, Any], None],
    assignment: Any,
    *,
    rank_count: int,
    kind: str,
    field: str,
) -> None:
    """Return once `function(rank, assignment)` has ended on each of `rank_count` ranks of `kind`.

    No thread of this process may have computed with torch: what it holds a fork would wait for.

    Raises:
        LaunchError: naming `field`, if a rank fails.
    """
    os.environ[LAUNCHER_PROCESS] = str(os.getpid())
    os.environ[PROGRESS_SECONDS] = "0"  # what it trains is no run that anybody follows
    if kind == "cpu":
        os.environ["OMP_NUM_THREADS"] = "1"
    try:
        start_processes(  # type: ignore[no-untyped-call]
            _in_own_session,
            args=(function, assignment),
            nprocs=rank_count,
            start_method="fork" if kind == "cpu" else "spawn",
        )
    except ProcessException as error:
        text = str(error).strip().splitlines()
        raise LaunchError(
            f"a rank failed: {text[-1][:300] if text else 'no message'}",
            field=field,
            value=f"{rank_count} ranks on {kind}",
            remedy="see whether the devices and their network are free and work",
        ) from None


def _in_own_session(rank: int, function: Callable[[int, Any], None], assignment: Any) -> None:
    """Run `function` in a session of its own, as torch's launcher starts the ranks of a run.

    A system that shares its cores among sessions gives these ranks what it gives those.
    """
    if hasattr(os, "setsid"):
        os.setsid()
    function(rank, assignment)
