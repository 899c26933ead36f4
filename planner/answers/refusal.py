"""Refusal: why a search that was held to some degrees found nothing."""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from planner.ilp.problem import NotFound
from planner.requests.resolution import Request
from planner.schema.job import Limits
from planner.schema.reasons import Excess
from planner.schema.strategy import Strategy
from planner.space.legality import breaches

_MODEL_DEGREES = ("tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree")


def rules(
    answer: NotFound, request: Request, limits: Limits, *, fixed: Collection[str]
) -> tuple[str, ...]:
    """Return the rules that leave no configuration within `limits`.

    Those that the least of the allowed degrees break by themselves; if they break none, those by
    which the search refused most. That other degrees than the fixed ones were not looked at is no
    reason and is left out.
    """
    by_fixing = tuple(f"job.limits.{name} is" for name in fixed)
    ranked = sorted(answer.refused, key=lambda rule: (-answer.refused[rule], rule))
    kept = tuple(rule for rule in ranked if not rule.startswith(by_fixing))
    broken = _simplest_breaches(request, limits)
    return broken or kept or ("no legal configuration has them together",)


def resolved_and_broken(
    request: Request, strategy: Strategy
) -> tuple[Strategy | None, tuple[str, ...]]:
    """Return the strategy spelled out, `None` where it cannot be, and the rules that it breaks."""
    graph, job = request.model.resolved, request.job.resolved
    try:
        whole = strategy.resolved(
            block_count=graph.block_count, global_batch_size=job.global_batch_size or 1
        )
    except ValueError as error:
        return None, (str(error),)
    broken = tuple(
        f"{breach.field} {breach.value}: {breach.problem}; {breach.remedy}"
        for breach in breaches(graph, request.hardware, job, whole)
    )
    return whole, broken


def excesses(answer: NotFound) -> tuple[Excess, ...]:
    """Return what the leanest configurations need at least beyond what there is, least first."""
    return tuple(
        Excess(
            stage=None,
            resource="device_memory" if one.exceeds_device else "host_memory",
            required_bytes=one.required_bytes,
            capacity_bytes=one.capacity_bytes,
            excess_bytes=max(one.required_bytes - one.capacity_bytes, 0.0),
        )
        for one in answer.shortfalls
    )


def missing_bytes(answer: NotFound) -> float | None:
    """Return what the leanest configuration lacks of device memory at least, `None` if nothing.

    It is a bound: choices that each take least need not go together.
    """
    lacking = [one.excess_bytes for one in excesses(answer) if one.resource == "device_memory"]
    return min(lacking, default=None)


def _simplest_breaches(request: Request, limits: Limits) -> tuple[str, ...]:
    """Return the rules that the least of the allowed degrees break by themselves.

    All ranks that are left are data-parallel, and nothing else is decided.
    """
    least = {name: getattr(limits, name).min for name in _MODEL_DEGREES}
    ranks, rest = divmod(request.hardware.device_count, prod(least.values()))
    strategy = Strategy(
        **least,
        expert_parallel_degree=limits.expert_parallel_degree.min,
        data_parallel_shard_degree=1 if rest else max(ranks, 1),
        micro_batch_size=limits.micro_batch_size.min,
    )
    return resolved_and_broken(request, strategy)[1]
