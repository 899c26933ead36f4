"""Complexity: how many techniques a strategy asks for beyond plain data parallelism.

Each counts once: tensor, pipeline, context and expert parallelism, replicas of shard groups (HSDP),
virtual stages, a schedule with split backwards, stages that are not spread evenly, every further
ZeRO stage and every further checkpointing choice in one model, every kind of state that is
offloaded, and again where some layers alone offload it. Data parallelism, a ZeRO stage, activation
checkpointing and sequence parallelism are one line in every framework, and count nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.cost.configuration import Configurations, Integers
from planner.schema.strategy import V_SCHEDULES, EdgeChoice, LayerGroup, Offload, Strategy


def complexity(strategy: Strategy) -> int:
    """Return the number of techniques of a resolved strategy."""
    return len(features(strategy))


def features(strategy: Strategy) -> tuple[str, ...]:
    """Return the techniques of a resolved strategy in words, one for each that counts."""
    return (*_of_degrees(strategy), *_of_layers(strategy))


def _of_degrees(strategy: Strategy) -> Iterator[str]:
    degrees = (
        ("tensor parallelism", strategy.tensor_parallel_degree),
        ("a pipeline", strategy.pipeline_parallel_degree),
        ("context parallelism", strategy.context_parallel_degree),
        ("expert parallelism", strategy.expert_parallel_degree),
    )
    yield from (name for name, degree in degrees if degree > 1)
    if min(strategy.shard_degree, strategy.replicate_degree) > 1:
        yield "replicas of shard groups"
    if strategy.pipeline_parallel_degree > 1:
        if strategy.virtual_degree > 1:
            yield "virtual stages"
        if strategy.pipeline_schedule in V_SCHEDULES:
            yield f"the schedule {strategy.pipeline_schedule.value}"


def configuration_complexity(configurations: Configurations) -> Integers:
    """Return what degrees and schedule count, [configurations]."""
    c = configurations
    piped = c.pipeline_parallel_degree > 1
    several = (
        c.tensor_parallel_degree > 1,
        piped,
        c.context_parallel_degree > 1,
        c.expert_parallel_degree > 1,
        np.minimum(c.data_parallel_shard_degree, c.data_parallel_replicate_degree) > 1,
        piped & (c.virtual_pipeline_degree > 1),
        piped & np.isin(c.pipeline_schedule, [schedule.value for schedule in V_SCHEDULES]),
    )
    counts: Integers = np.sum(several, axis=0, dtype=np.int64)
    return counts


def _of_layers(strategy: Strategy) -> Iterator[str]:
    groups = [group for stage in strategy.stages or () for group in stage.layers]
    ends = [end for end in (strategy.embedding, strategy.head) if end is not None]
    counts = tuple(stage.block_count for stage in strategy.stages or ())
    if counts != even_counts(sum(counts), len(counts)):
        yield "stages of unequal length"
    layers: list[LayerGroup | EdgeChoice] = [*groups, *ends]
    zero_stages = sorted({layer.zero_stage for layer in layers})
    yield from (f"ZeRO {stage} beside {zero_stages[0]}" for stage in zero_stages[1:])
    kept = sorted({group.activation_checkpointing.value for group in groups})
    for name in kept[1:]:
        yield f"{'no' if name == 'none' else name} checkpointing beside {kept[0]}"
    for state in Offload:  # the ends have no activations to offload
        some = groups if state is Offload.ACTIVATIONS else layers
        held = [state in each.offload for each in some]
        if any(held):
            yield f"offload of {state.value}"
            if not all(held):
                yield f"offload of {state.value} by some layers alone"


def even_counts(block_count: int, stage_count: int) -> tuple[int, ...]:
    """Return blocks by stage, spread evenly; earlier stages take the remainder."""
    each, more = divmod(block_count, max(stage_count, 1))
    return tuple(each + (stage < more) for stage in range(stage_count))
