"""Bound record: what a stranger needs to evaluate a plan's lower bound again."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from planner.schema.document import Degree, Document, Flag, Name, Part
from planner.schema.plan import Amount, Tally
from planner.schema.strategy import ContextParallelKind, PipelineSchedule


class ConfigurationDegrees(Part):
    """The degrees, schedule and micro-batch of a configuration.

    `device_order` counts the orders in which kinds of devices may follow one another.
    """

    tensor_parallel_degree: Degree
    sequence_parallel: Flag
    pipeline_parallel_degree: Degree
    virtual_pipeline_degree: Degree
    pipeline_schedule: PipelineSchedule
    context_parallel_degree: Degree
    context_parallel_kind: ContextParallelKind
    expert_parallel_degree: Degree
    expert_tensor_parallel_degree: Degree
    data_parallel_replicate_degree: Degree
    data_parallel_shard_degree: Degree
    micro_batch_size: Degree
    micro_batch_count: Degree
    device_order: Tally


class BoundEngine(StrEnum):
    """What a search has bounded a configuration by, beyond prices of memory."""

    BRANCH_AND_BOUND = "branch and bound"
    INTEGER_PROGRAM = "integer program"
    OTHER = "other bounds"


class TrustedBound(Part):
    """A configuration whose bound is an engine's own: prices of memory do not reach it.

    `part` counts the parts of the space of a job that names its framework.
    """

    engine: BoundEngine
    part: Tally = 0
    configuration: ConfigurationDegrees


class BoundRecord(Document):
    """By what the lower bound of a plan holds (`planner.proof.duality`).

    The closed form of no plan is below `lower_bound_seconds`: every configuration of the space that
    is not among the `trusted` has no plan that fits, or none below it at some of the prices.
    """

    plan_id: Name
    lower_bound_seconds: Amount
    memory_prices_seconds_per_byte: Annotated[tuple[Amount, ...], Field(max_length=64)]
    trusted: tuple[TrustedBound, ...]
