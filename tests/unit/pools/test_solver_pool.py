"""The pool of processes: an executor whose tasks can be killed one by one."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import CancelledError, Executor
from functools import partial
from pathlib import Path

import pytest

from planner.errors import (
    InputError,
    SolveCancelledError,
    SolveError,
    SolverDiedError,
    SolveTimeLimitError,
)
from planner.pools.solver_pool import SolverPool
from tests.contract.api.solvers import a_progress, plan_dying, plan_forever
from tests.dask_cluster import dask_cluster, needs_dask

pytestmark = pytest.mark.slow
PATIENCE_SECONDS = 600.0


def own_process_id() -> int:
    return os.getpid()


def refusing() -> None:
    raise InputError("is not even", field="degree", value=3, remedy="use 4")


class UnportableError(Exception):
    """An error that no other process can restore."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


def unportable() -> None:
    raise UnportableError("two", "words")


def reporting(*, on_progress) -> str:
    for phase in ("read", "search", "done"):
        on_progress(a_progress(phase))
    return "answer"


def child_that_outlives_nobody(*, on_progress) -> None:
    """Start a process of one's own, as an external solver is, and wait for it."""
    child = os.fork()
    if child == 0:
        signal.pause()
    on_progress(child)
    os.waitpid(child, 0)


@pytest.fixture(scope="module")
def dask_address():
    """A Dask cluster with one worker that runs one task at a time."""
    with dask_cluster() as cluster:
        cluster.start_worker()
        yield cluster.address


@pytest.fixture(params=["processes", pytest.param("dask", marks=needs_dask)])
def make_pool(request):
    """Whatever pool it is, it does the same."""
    if request.param == "processes":
        return partial(SolverPool, process_count=1)
    from planner.pools.dask_pool import DaskPool  # noqa: PLC0415 - an extra

    return partial(DaskPool, request.getfixturevalue("dask_address"))


@pytest.fixture
def pool(make_pool):
    pool = make_pool(seconds_limit=PATIENCE_SECONDS)
    yield pool
    pool.shutdown(cancel_futures=True)


def started(pool, function, *args):
    """Submit a function that reports when it runs, and wait until it does."""
    reports, begun = [], threading.Event()

    def listen(report):
        reports.append(report)
        begun.set()

    future = pool.submit(function, *args, on_progress=listen)
    assert begun.wait(PATIENCE_SECONDS)
    return future, reports


def test_it_is_an_executor(pool):
    assert isinstance(pool, Executor)
    assert list(pool.map(abs, [-1, 2, -3])) == [1, 2, 3]


def test_a_task_runs_in_another_process_which_is_kept_for_the_next(pool):
    first = pool.submit(own_process_id).result()

    assert first != os.getpid()
    assert pool.submit(own_process_id).result() == first


def test_a_warm_pool_has_a_process_before_its_first_task(pool):
    pool.warm_up()
    assert pool.process_ids() == ()

    assert pool.submit(abs, -5).result() == 5


def test_progress_arrives_in_order_before_the_answer(pool):
    phases = []

    answer = pool.submit(reporting, on_progress=lambda progress: phases.append(progress.phase))

    assert answer.result() == "answer"
    assert phases == ["read", "search", "done"]


def test_an_error_arrives_as_it_was_raised(pool):
    with pytest.raises(InputError) as caught:
        pool.submit(refusing).result()

    assert (caught.value.field, caught.value.value, caught.value.remedy) == ("degree", 3, "use 4")


def test_an_error_that_cannot_travel_arrives_as_its_name_and_text(pool):
    with pytest.raises(SolveError, match="UnportableError: two words"):
        pool.submit(unportable).result()


def test_a_death_fails_its_own_task_and_no_other(pool):
    dying, next_one = pool.submit(plan_dying), pool.submit(abs, -5)

    with pytest.raises(SolverDiedError, match="signal 9"):
        dying.result()
    assert next_one.result() == 5


def test_a_running_task_can_be_killed(pool):
    future, _ = started(pool, plan_forever)

    pool.kill(future)

    with pytest.raises(SolveCancelledError):
        future.result()
    assert pool.submit(abs, -5).result() == 5


def test_a_waiting_task_can_be_killed(pool):
    running, _ = started(pool, plan_forever)
    waiting = pool.submit(abs, -5)

    pool.kill(waiting)

    with pytest.raises((CancelledError, SolveCancelledError)):
        waiting.result()
    assert not running.done()


def test_killing_what_has_ended_does_nothing(pool):
    future = pool.submit(abs, -5)
    future.result()

    pool.kill(future)

    assert future.result() == 5


def test_a_killed_task_takes_its_own_processes_along(pool):
    future, (child,) = started(pool, child_that_outlives_nobody)

    pool.kill(future)
    with pytest.raises(SolveCancelledError):
        future.result()

    assert _ends(child)


def test_a_task_past_its_time_is_ended(make_pool):
    pool = make_pool(seconds_limit=0.2)
    with pytest.raises(SolveTimeLimitError, match=r"0\.2 s"):
        pool.submit(plan_forever).result()
    pool.shutdown(cancel_futures=True)


def test_shutting_down_ends_what_runs_and_what_waits(pool):
    running, _ = started(pool, plan_forever)
    waiting = pool.submit(abs, -5)

    pool.shutdown(cancel_futures=True)

    assert isinstance(running.exception(), SolveCancelledError)
    assert waiting.cancelled() or isinstance(waiting.exception(), SolveCancelledError)
    assert pool.process_ids() == ()


def _ends(process_id: int, *, seconds: float = PATIENCE_SECONDS) -> bool:
    """Return whether the process ends: a signal that was sent may yet have to arrive."""
    deadline = time.monotonic() + seconds
    while _runs(process_id) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not _runs(process_id)


def _runs(process_id: int) -> bool:
    """Return whether the process is neither gone nor a corpse that nobody has buried."""
    try:
        status = Path(f"/proc/{process_id}/stat").read_text(encoding="ascii")
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_a_solve_leaves_the_cores_to_those_who_answer(pool):
    assert pool.submit(os.nice, 0).result() == min(19, os.nice(0) + 10)


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="a policy of Linux")
def test_a_solve_leaves_its_core_as_soon_as_an_answer_needs_it(pool):
    assert pool.submit(os.sched_getscheduler, 0).result() == os.SCHED_IDLE


def test_a_killed_solve_leaves_no_pipe_open(pool):
    """Also while somebody keeps its error."""

    def killed() -> Exception | None:
        begun = threading.Event()
        future = pool.submit(plan_forever, on_progress=lambda _: begun.set())
        assert begun.wait(PATIENCE_SECONDS)
        pool.kill(future)
        return future.exception()

    def open_count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    kept = [killed()]
    before = open_count()
    kept += [killed() for _ in range(3)]

    assert all(isinstance(error, SolveCancelledError) for error in kept)
    assert open_count() <= before
