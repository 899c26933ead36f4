"""Outside: limits that ask for what `planner.space.rules` leaves out, one rule after the other."""

from __future__ import annotations

from planner.hardware import ClusterHardware
from planner.schema.job import DegreeLimit, Limits
from planner.schema.strategy import PipelineSchedule
from planner.space.rules import MICRO_BATCH_SIZE_LIMIT, tensor_parallel_domain

ANY = DegreeLimit(max=2**20 - 1)
"""Allows all degrees that a cluster can have, and yet is a limit, which lifts the rule."""


def lifted_limits(limits: Limits, hardware: ClusterHardware) -> dict[str, Limits]:
    """Return limits by the rule that they lift, but for rules that the job's own limits lift."""
    domain = tensor_parallel_domain(hardware)
    wanted: dict[str, tuple[str, DegreeLimit]] = {
        "tensor parallelism beyond a domain": (
            "tensor_parallel_degree",
            DegreeLimit(min=domain + 1),
        ),
        "short contexts": ("context_parallel_degree", DegreeLimit(min=2)),
        "all shard degrees": ("data_parallel_shard_degree", ANY),
        "large micro-batches": ("micro_batch_size", DegreeLimit(min=MICRO_BATCH_SIZE_LIMIT + 1)),
        "all virtual degrees": ("virtual_pipeline_degree", ANY),
        "all splits of experts": ("expert_tensor_parallel_degree", ANY),
    }
    found = {
        rule: limits.model_copy(update={field: limit})
        for rule, (field, limit) in wanted.items()
        if getattr(limits, field) == DegreeLimit()
    }
    if PipelineSchedule.GPIPE in limits.pipeline_schedules:
        found["gpipe"] = limits.model_copy(update={"pipeline_schedules": (PipelineSchedule.GPIPE,)})
    return found
