"""A pool on a Dask cluster: what is lost there is done again once, or said."""

from __future__ import annotations

import os
import queue
import signal
import time
from multiprocessing import parent_process
from pathlib import Path

import pytest

from planner import planning
from planner.errors import DaskLostError, InputError, SolveError, SolverDiedError
from planner.requests.resolution import resolved_cluster, resolved_model
from planner.schema.job import Job
from tests.dask_cluster import PATIENCE_SECONDS, dask_cluster, needs_dask

pytestmark = [pytest.mark.slow, needs_dask]


def plan_through_door(door: str, *request, on_progress):
    """Plan; each progress tells which worker runs this, and waits until the door is open."""

    def listen(_):
        on_progress(parent_process().pid)
        while not Path(door).exists():
            time.sleep(0.05)

    return planning.plan(*request, on_progress=listen)


def a_request():
    """A small model on one node."""
    return resolved_model("llama-3-8b"), resolved_cluster("8xh100"), Job(global_batch_size=64)


@pytest.fixture
def cluster():
    with dask_cluster() as cluster:
        yield cluster


@pytest.fixture
def make_pool():
    from planner.pools.dask_pool import DaskPool  # noqa: PLC0415 - an extra

    made = []

    def make(address):
        made.append(DaskPool(address, seconds_limit=PATIENCE_SECONDS))
        return made[-1]

    yield make
    for pool in made:
        pool.shutdown(cancel_futures=True)


class Workers:
    """Hears which worker a task runs on, each time that it is begun."""

    def __init__(self):
        self._heard = queue.SimpleQueue()
        self._last = None

    def __call__(self, worker_id):
        """Take which one it is, once for each time that it changes."""
        if worker_id != self._last:
            self._last = worker_id
            self._heard.put(worker_id)

    def kill_next(self):
        """Kill the next one as soon as it has begun."""
        os.kill(self.wait_for_next(), signal.SIGKILL)

    def wait_for_next(self):
        """Return the next one as soon as it has begun."""
        return self._heard.get(timeout=PATIENCE_SECONDS)


def test_a_solve_whose_worker_is_killed_is_done_again_and_equals_one_made_here_to_the_bit(
    cluster, make_pool, tmp_path
):
    for _ in range(2):
        cluster.start_worker()
    workers, door = Workers(), tmp_path / "door"
    future = make_pool(cluster.address).submit(
        plan_through_door, str(door), *a_request(), on_progress=workers
    )

    workers.kill_next()
    workers.wait_for_next()
    door.touch()

    here = planning.plan(*a_request())
    assert _without_times(future.result(PATIENCE_SECONDS)) == _without_times(here)


@pytest.mark.full
def test_a_solve_that_loses_two_workers_is_not_begun_a_third_time(cluster, make_pool, tmp_path):
    for _ in range(3):
        cluster.start_worker()
    workers = Workers()
    future = make_pool(cluster.address).submit(
        plan_through_door, str(tmp_path / "door"), *a_request(), on_progress=workers
    )

    workers.kill_next()
    workers.kill_next()

    with pytest.raises(SolverDiedError, match="the Dask workers that ran the solve were lost"):
        future.result(PATIENCE_SECONDS)


def test_a_lost_scheduler_fails_what_runs_and_is_found_again_at_its_place(
    cluster, make_pool, tmp_path, caplog
):
    cluster.start_worker()
    pool, workers = make_pool(cluster.address), Workers()
    future = pool.submit(
        plan_through_door, str(tmp_path / "door"), *a_request(), on_progress=workers
    )
    worker_id = workers.wait_for_next()

    cluster.scheduler.kill()
    cluster.scheduler.wait()

    with pytest.raises(DaskLostError, match=cluster.address):
        future.result(PATIENCE_SECONDS)
    with pytest.raises(DaskLostError, match="start it, or correct the address"):
        pool.submit(abs, -5).result(PATIENCE_SECONDS)
    with pytest.raises(DaskLostError):
        pool.check()
    assert cluster.workers[0].wait(PATIENCE_SECONDS) is not None
    assert worker_id == cluster.workers[0].pid
    cluster.start_scheduler(cluster.address.rpartition(":")[2])
    cluster.start_worker()
    assert _answered(pool, abs, -5) == 5
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


@pytest.mark.full
def test_the_solve_of_a_client_that_is_gone_is_ended(cluster, make_pool):
    cluster.start_worker()
    pool, workers = make_pool(cluster.address), Workers()
    pool.submit(report_and_wait, on_progress=workers)
    solver_id = workers.wait_for_next()

    pool._client.close()

    _until(lambda: not _runs(solver_id))


def report_and_wait(*, on_progress):
    on_progress(os.getpid())
    signal.pause()


@pytest.mark.full
def test_a_worker_that_may_start_no_processes_says_so(cluster, make_pool):
    cluster.start_worker(nanny=True)

    with pytest.raises(SolveError, match="start it with --no-nanny"):
        make_pool(cluster.address).submit(abs, -5).result(PATIENCE_SECONDS)


def test_a_worker_of_another_version_says_so(cluster, make_pool, monkeypatch):
    from planner.pools import dask_pool  # noqa: PLC0415 - an extra

    cluster.start_worker()
    monkeypatch.setattr(dask_pool, "planner_version", lambda: "0.0.7")

    with pytest.raises(SolveError, match=r"and this is 0\.0\.7: install the same on both"):
        make_pool(cluster.address).submit(abs, -5).result(PATIENCE_SECONDS)


@pytest.mark.parametrize("address", ["", "10.0.0.5", "tcp://10.0.0.5", "http://10.0.0.5:8786"])
def test_what_is_no_address_of_a_scheduler_is_refused(address):
    from planner.pools.dask_pool import check_scheduler  # noqa: PLC0415 - an extra

    with pytest.raises(InputError, match="--dask: is not an address of a Dask scheduler"):
        check_scheduler(address, field="--dask")


def _without_times(plan):
    fields = plan.model_dump(mode="json")
    del fields["certificate"]["solve_seconds"]
    return fields


def _answered(pool, function, *args):
    """Return the answer as soon as the scheduler is looked for again."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            return pool.submit(function, *args).result(PATIENCE_SECONDS)
        except DaskLostError:
            time.sleep(0.2)
    raise AssertionError("the scheduler was not found again")


def _until(holds):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


def _runs(process_id):
    """Return whether the process is neither gone nor a corpse that nobody has buried."""
    status = Path(f"/proc/{process_id}/stat")
    return status.exists() and status.read_text("ascii").rpartition(")")[2].split()[0] != "Z"
