"""Fixed limits: a job's limits with degrees or techniques fixed, and which of them are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from pydantic import ValidationError

from planner.errors import InputError
from planner.schema.complaints import complaint_words
from planner.schema.job import DegreeLimit, Limits
from planner.schema.strategy import Strategy

_TECHNIQUES = {
    "zero_stage": "zero_stages",
    "activation_checkpointing": "activation_checkpointing",
    "pipeline_schedule": "pipeline_schedules",
    "context_parallel_kind": "context_parallel_kinds",
    "offload": "offload",
}
DEGREES = tuple(
    name for name, field in Limits.model_fields.items() if field.annotation is DegreeLimit
)
ASKABLE = (*DEGREES, "sequence_parallel", *_TECHNIQUES)


def limits_with(limits: Limits, fixed: Mapping[str, Any]) -> Limits:
    """Return `limits` with degrees and techniques fixed.

    Raises:
        InputError: if a name cannot be fixed or its value is bad.
    """
    changes: dict[str, Any] = {}
    for name, value in fixed.items():
        if name not in ASKABLE:
            raise InputError(
                "cannot be fixed",
                field="why_not",
                value=name,
                remedy=f"fix one or more of {', '.join(ASKABLE)}",
            )
        many = name in _TECHNIQUES and not isinstance(value, list | tuple)
        changes[_TECHNIQUES.get(name, name)] = (value,) if many else value
    try:
        return Limits.model_validate({**limits.model_dump(), **changes})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        problem, remedy = complaint_words(first)
        field = f"why_not.{first['loc'][0]}"
        raise InputError(problem, field=field, value=str(first["input"]), remedy=remedy) from None


def fields_outside(strategy: Strategy, limits: Limits) -> Iterator[str]:
    """Yield the limits of the job that a resolved strategy does not keep."""
    for name in DEGREES:
        if not getattr(limits, name).allows(degree_of(strategy, name)):
            yield name
    wanted = limits.sequence_parallel
    sequence_matters = strategy.tensor_parallel_degree > 1 and wanted is not None
    if sequence_matters and strategy.sequence_parallel is not wanted:
        yield "sequence_parallel"
    schedule_matters = strategy.pipeline_parallel_degree > 1
    if schedule_matters and strategy.pipeline_schedule not in limits.pipeline_schedules:
        yield "pipeline_schedules"
    kind_matters = strategy.context_parallel_degree > 1
    if kind_matters and strategy.context_parallel_kind not in limits.context_parallel_kinds:
        yield "context_parallel_kinds"
    ranks = (strategy.stages or ())[: strategy.pipeline_parallel_degree]
    groups = [stage.device_group for stage in ranks]
    if len(list(groupby(groups))) - len(set(groups)) > limits.device_returns:
        yield "device_returns"
    yield from _techniques_outside(strategy, limits)


def degree_of(strategy: Strategy, name: str) -> int:
    """Return what a resolved strategy has of one of `DEGREES`."""
    degree: int = {
        "data_parallel_shard_degree": strategy.shard_degree,
        "data_parallel_replicate_degree": strategy.replicate_degree,
        "expert_tensor_parallel_degree": strategy.expert_tensor_parallel_degree
        or strategy.tensor_parallel_degree,
    }.get(name) or getattr(strategy, name)
    return degree


def is_within(name: str, limits: Limits, own: Limits) -> bool:
    """Return whether what was asked for keeps the job's own limit."""
    field = _TECHNIQUES.get(name, name)
    asked, given = getattr(limits, field), getattr(own, field)
    if isinstance(given, DegreeLimit):
        return bool(given.min <= asked.min and asked.max <= given.max)
    if field == "sequence_parallel":
        return given is None or asked == given
    return set(asked) <= set(given)


def _techniques_outside(strategy: Strategy, limits: Limits) -> Iterator[str]:
    groups = [group for stage in strategy.stages or () for group in stage.layers]
    if any(group.zero_stage not in limits.zero_stages for group in groups):
        yield "zero_stages"
    allowed = limits.activation_checkpointing
    if any(group.activation_checkpointing not in allowed for group in groups):
        yield "activation_checkpointing"
    used = {item for group in groups for item in group.offload}
    used |= {
        item
        for edge in (strategy.embedding, strategy.head)
        if edge is not None
        for item in edge.offload
    }
    if not used <= set(limits.offload):
        yield "offload"
