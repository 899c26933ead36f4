"""What a Dask worker does with a task: a process runs it, for as long as somebody wants it."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import cache
from multiprocessing import current_process
from typing import Any

from distributed import Worker, get_worker, secede
from distributed.core import Status

from planner.errors import SolveError
from planner.pools.solver_pool import SolverPool
from planner.version import planner_version

# Dask decides how many tasks a worker has; its own pool never lets one wait.
_PROCESSES_AT_MOST = 1024
_LOOK_SECONDS = 0.2
_REPORT_SECONDS = 0.1
_ENDING = {Status.closing, Status.closed, Status.failed}


def run_task(
    call: bytes, asked: tuple[float, tuple[str, ...], str], topic: str, *, reports: bool
) -> tuple[str, Any]:
    """Return `result` or `error`, and what the pickled call returned or raised.

    `asked` are the seconds that it may take, the modules that it needs, and the version of who
    asks. A function that takes `dask_scheduler` has others work for it: it gives its place back.
    """
    seconds_limit, modules, version = asked
    worker = get_worker()
    key = worker.get_current_task()
    complaint = _complaint(worker, version)
    if complaint is not None:
        return "error", SolveError(complaint)
    worker.log_event(topic, (key, "begun", worker.address))
    function, args, kwargs = pickle.loads(call)  # noqa: S301 - the scheduler's clients are trusted
    if "dask_scheduler" in kwargs:
        secede()
    if reports:
        kwargs["on_progress"] = _reporter(worker, topic, key)
    pool = _pool(seconds_limit, modules)
    return _outcome(worker, key, pool, pool.submit(function, *args, **kwargs))


def _complaint(worker: Worker, version: str) -> str | None:
    """Return why the worker cannot do it."""
    if planner_version() != version:
        return (
            f"the Dask worker {worker.address} has Meshwright {planner_version()}, and this is "
            f"{version}: install the same on both"
        )
    if current_process().daemon:
        return (
            f"the Dask worker {worker.address} may start no processes: start it with --no-nanny, "
            "or with DASK_DISTRIBUTED__WORKER__DAEMON=False"
        )
    return None


@cache
def _pool(seconds_limit: float, modules: tuple[str, ...]) -> SolverPool:
    """Return the processes of this worker."""
    return SolverPool(
        process_count=_PROCESSES_AT_MOST, seconds_limit=seconds_limit, modules=modules
    )


def _reporter(worker: Worker, topic: str, key: str) -> Callable[[Any], None]:
    """Return what sends progress to who asked, a few times a second at most of the same phase."""
    last: tuple[Any, float] = (None, 0.0)

    def report(progress: Any) -> None:
        nonlocal last
        phase, now = getattr(progress, "phase", progress), time.monotonic()
        if phase == last[0] and now < last[1] + _REPORT_SECONDS:
            return
        last = phase, now
        worker.log_event(topic, (key, "progress", pickle.dumps(progress)))

    return report


def _outcome(worker: Worker, key: str, pool: SolverPool, answer: Future[Any]) -> tuple[str, Any]:
    while not wait((answer,), timeout=_LOOK_SECONDS).done:
        if not _is_wanted(worker, key):
            pool.kill(answer)
    error = answer.exception()
    return ("result", answer.result()) if error is None else ("error", error)


def _is_wanted(worker: Worker, key: str) -> bool:
    """Return whether somebody still waits for the task, and the worker goes on."""
    task = worker.state.tasks.get(key)
    return task is not None and task.state != "cancelled" and worker.status not in _ENDING
