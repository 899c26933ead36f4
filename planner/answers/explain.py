"""Explain: why a plan is as it is, in words and numbers."""

from __future__ import annotations

from itertools import groupby

from planner.answers.chance_words import percent
from planner.answers.objective_words import value_words
from planner.cost.configuration import Configuration
from planner.cost.price_list import configuration_of
from planner.ilp.problem import Candidate, Found
from planner.requests.resolution import Request
from planner.schema.job import Limits, Objective
from planner.schema.plan import Alternative, Explanation, Prediction
from planner.schema.strategy import ContextParallelKind, PipelineSchedule, Strategy
from planner.space.divisibility import sharing_assumptions
from planner.units import format_bytes, format_seconds

_BINDING_RATIO = 0.97


def explanation(request: Request, found: Found, prediction: Prediction) -> Explanation:
    """Return what the plan is, which limits bind, and how far the next best degrees are."""
    return Explanation(
        summary=_summary(found, prediction),
        binding_constraints=_binding(prediction, request.job.resolved.limits),
        runners_up=tuple(_alternative(candidate, found) for candidate in found.runners_up),
        assumptions=(
            *request.assumptions,
            *sharing_assumptions(request.model.resolved, found.strategy.tensor_parallel_degree),
        ),
    )


def describe(configuration: Configuration) -> str:
    """Return a configuration's degrees above one in short: `TP 4 x PP 2 x DP 8, 1f1b, ...`."""
    named = (
        ("TP", configuration.tensor_parallel_degree),
        ("PP", configuration.pipeline_parallel_degree),
        ("CP", configuration.context_parallel_degree),
        ("DP", configuration.data_parallel_shard_degree),
        ("replicas", configuration.data_parallel_replicate_degree),
    )
    degrees = " x ".join(f"{name} {degree}" for name, degree in named if degree > 1) or "one device"
    sequence = " with sequence parallel" if configuration.sequence_parallel else ""
    batches = "micro-batch" if configuration.micro_batch_count == 1 else "micro-batches"
    return (
        f"{degrees}{_experts(configuration)}{sequence}{_schedule(configuration)}, "
        f"{configuration.micro_batch_count} {batches} of {configuration.micro_batch_size}"
    )


def _experts(configuration: Configuration) -> str:
    """Return how experts are spread, and split where that is not as the other layers are."""
    split = configuration.expert_tensor_degree
    parts = []
    if configuration.expert_parallel_degree > 1:
        parts.append(f"EP {configuration.expert_parallel_degree}")
    if split != configuration.tensor_parallel_degree:
        parts.append(f"expert TP {split}")
    return f" with {' x '.join(parts)}" if parts else ""


def _schedule(configuration: Configuration) -> str:
    """Return the schedule with its virtual stages, and how context is exchanged if by heads."""
    words = ""
    if configuration.pipeline_parallel_degree > 1:
        words = f", {configuration.pipeline_schedule.value}"
        if configuration.pipeline_schedule is PipelineSchedule.INTERLEAVED:
            words += f" of {configuration.virtual_pipeline_degree}"
    exchanges = configuration.context_parallel_kind is ContextParallelKind.ALL_TO_ALL
    if configuration.context_parallel_degree > 1 and exchanges:
        words += ", CP by all-to-all"
    return words


def _summary(found: Found, prediction: Prediction) -> str:
    strategy = found.strategy
    parts = prediction.breakdown_seconds.model_dump()
    ranked = sorted(parts.items(), key=lambda item: -item[1])[:3]
    total = prediction.step_seconds.p50
    shares = ", ".join(
        f"{name.replace('_', ' ')} {seconds / total:.0%}" for name, seconds in ranked if seconds
    )
    described = f"{describe_strategy(strategy)}{_device_groups(strategy)}"
    return f"{described}: {_value(found)}{format_seconds(total)} a step ({shares})."


def _value(found: Found) -> str:
    """Return what the plan has of an objective other than its step."""
    objective, value = found.certificate.objective, found.certificate.objective_value
    if objective is Objective.THROUGHPUT or value is None:
        return ""
    return f"{value_words(objective, value)}, "


def _device_groups(strategy: Strategy) -> str:
    """Return how many stages sit on which devices, in their order, where there are several."""
    ranks = (strategy.stages or ())[: strategy.pipeline_parallel_degree]
    runs = [(name, len(list(run))) for name, run in groupby(stage.device_group for stage in ranks)]
    if len(runs) < 2:
        return ""
    words = (f"{count} stage{'s' if count > 1 else ''} on {name}" for name, count in runs)
    return f", {', then '.join(words)}"


def describe_strategy(strategy: Strategy) -> str:
    """Return a resolved strategy's degrees in short."""
    return describe(configuration_of(strategy))


def _binding(prediction: Prediction, limits: Limits) -> tuple[str, ...]:
    """Return the limits that the plan uses almost whole."""
    chance = limits.fits_probability
    asked = "" if chance is None else f" at a chance of fitting of {percent(chance)}"
    lines = []
    for stage in prediction.stages:
        for what, used, capacity, words in (
            ("device", stage.peak_memory_bytes, stage.capacity_bytes, asked),
            ("host", stage.host_memory_bytes, stage.host_capacity_bytes, ""),
        ):
            if capacity > 0 and used >= _BINDING_RATIO * capacity:
                lines.append(
                    f"{what} memory of stage {stage.stage}: {format_bytes(used)} of "
                    f"{format_bytes(capacity)}{words}"
                )
    return tuple(lines)


def _alternative(candidate: Candidate, found: Found) -> Alternative:
    return Alternative(
        objective_value=_alternative_value(candidate, found),
        description=describe(candidate.configuration),
        step_seconds=candidate.step_seconds,
        is_lower_bound=candidate.is_lower_bound,
    )


def _alternative_value(candidate: Candidate, found: Found) -> float | None:
    """Return the objective of a candidate on the plan's devices, as far as its step tells it."""
    value = found.certificate.objective_value
    match found.certificate.objective:
        case Objective.THROUGHPUT:
            return candidate.step_seconds
        case Objective.COST:
            ratio = candidate.step_seconds / found.step_seconds
            return None if value is None else value * ratio
        case Objective.DEVICES:
            return value
        case Objective.MEMORY:
            return None
