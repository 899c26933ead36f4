"""`python -m benchmarks.dask_workers`: the same work on one Dask worker and on two, in turn.

Solves are of one model and batches of several sizes, prices of one plan's strategy many times. The
workers run one task at a time each, on this machine; it must have a core for each, and be idle.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial

import dask
from distributed import LocalCluster

from planner import planning
from planner.cli.estimate import _priced
from planner.pools.dask_pool import DaskPool
from planner.requests.resolution import resolved_cluster, resolved_model
from planner.schema.job import Job
from planner.schema.plan import Infeasible, ResolvedCluster, ResolvedModel
from planner.schema.strategy import Strategy

BATCHES = tuple(64 * factor for factor in range(1, 17))
LINES, LINES_A_TASK = 20_000, 256
WORKER_COUNTS = (1, 2)


@contextmanager
def pool_of(worker_count: int) -> Iterator[DaskPool]:
    """Yield a pool on so many workers, each of which has planned once."""
    workers = {"n_workers": worker_count, "threads_per_worker": 1, "dashboard_address": None}
    with dask.config.set({"distributed.worker.daemon": False}), LocalCluster(**workers) as cluster:
        pool = DaskPool(cluster.scheduler_address, seconds_limit=600.0)
        try:
            for answer in [pool.submit(planning.plan, *a_request(64)) for _ in range(worker_count)]:
                answer.result()
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


def a_request(batch: int) -> tuple[ResolvedModel, ResolvedCluster, Job]:
    """Return Llama-3-8B on 64 H100."""
    return resolved_model("llama-3-8b"), resolved_cluster("64xh100"), Job(global_batch_size=batch)


@cache
def a_strategy() -> Strategy:
    """Return the strategy of its plan."""
    planned = planning.plan(*a_request(64))
    assert not isinstance(planned, Infeasible)
    return planned.strategy


def solves(pool: DaskPool) -> None:
    """Plan each batch."""
    for answer in [pool.submit(planning.plan, *a_request(batch)) for batch in BATCHES]:
        answer.result()


def prices(pool: DaskPool) -> None:
    """Price so many lines, as `meshwright estimate --strategies --json` does."""
    request, strategy = a_request(64), a_strategy()
    chunks = [
        [(index, strategy) for index in range(start, min(start + LINES_A_TASK, LINES))]
        for start in range(0, LINES, LINES_A_TASK)
    ]
    for _ in pool.in_order(partial(_priced, request, as_json=True), chunks):
        pass


WORKS: dict[str, Callable[[DaskPool], None]] = {
    f"{len(BATCHES)} plans of Llama-3-8B on 64 H100": solves,
    f"{LINES} strategies priced": prices,
}


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dask_workers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of each number of workers")
    options = parser.parse_args()
    seconds: dict[tuple[str, int], list[float]] = {}
    a_strategy()
    for _ in range(options.rounds):
        for count in WORKER_COUNTS:
            with pool_of(count) as pool:
                for name, work in WORKS.items():
                    start = time.perf_counter()
                    work(pool)
                    seconds.setdefault((name, count), []).append(time.perf_counter() - start)
    print("| work | one worker | two workers | times as fast |\n|---|---|---|---|")
    for name in WORKS:
        one, two = (statistics.median(seconds[name, count]) for count in WORKER_COUNTS)
        print(f"| {name} | {one:.1f} s | {two:.1f} s | {one / two:.2f} |")
    print(json.dumps({f"{name}, {count}": each for (name, count), each in seconds.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
