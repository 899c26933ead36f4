"""The baseline: every uniform strategy priced one by one, as planners without bounds do.

One choice of ZeRO stage, checkpointing and offload for all blocks, stages of even length: what a
sweep with a calculator covers. The planner's space holds all of these and many more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from planner.cost.step import predict
from planner.requests.resolution import Request
from planner.schema.strategy import Strategy
from planner.space.choices import block_choices
from planner.space.degrees import enumerate_configurations


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What a sweep found in its time, and how long the whole of it takes at that pace."""

    strategy_count: int
    priced_count: int
    whole_seconds: float
    best_step_seconds: float | None


def sweep(request: Request, *, seconds_limit: float) -> Sweep:
    """Price the uniform strategies of `request` in an even sample until `seconds_limit`."""
    strategies = list(uniform_strategies(request))
    stride = _stride(len(strategies))
    best: float | None = None
    priced_count = 0
    start = time.perf_counter()
    for index in range(len(strategies)):
        strategy = strategies[index * stride % len(strategies)]
        found = predict(request.workload, request.hardware, request.job.resolved, strategy)
        priced_count += 1
        if found.fits:
            step = found.step_seconds.p50
            best = step if best is None else min(best, step)
        if time.perf_counter() - start > seconds_limit:
            break
    seconds = time.perf_counter() - start
    return Sweep(
        strategy_count=len(strategies),
        priced_count=priced_count,
        whole_seconds=seconds * len(strategies) / priced_count,
        best_step_seconds=best,
    )


def uniform_strategies(request: Request) -> Iterator[Strategy]:
    """Yield every configuration with every choice that is the same for all blocks."""
    job, graph = request.job.resolved, request.model.resolved
    space = enumerate_configurations(graph, request.hardware, job)
    for configuration in space.rows:
        for choice in block_choices(job.limits, job.offload_to):
            degrees = asdict(configuration)
            degrees.pop("device_order")  # one kind of device has one order
            strategy = Strategy(**degrees, **asdict(choice))
            yield strategy.resolved(
                block_count=graph.block_count, global_batch_size=job.global_batch_size or 1
            )


def _stride(count: int) -> int:
    """Return a step that visits all of `count` places in scattered order: a prime beyond any."""
    return 2_147_483_647 % count or 1
