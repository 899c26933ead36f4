"""Extract: rounded counts -> stages of consecutive layer groups, in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.cost.configuration import Choice, Configuration, Integers
from planner.ilp.formulation import Formulation
from planner.ilp.instance import Assignment, Instance, Kind, cuts_of
from planner.ilp.solver import Solution
from planner.schema.strategy import EdgeChoice, LayerGroup, Stage, Strategy


def assignment_of(made: Formulation, solution: Solution) -> Assignment:
    """Return layers by [stages, choices] of every kind and the cuts, rounded from floats."""
    instance = made.instance
    counts = tuple(
        np.zeros((instance.stage_count, len(kind.choice)), dtype=np.int64)
        for kind in instance.kinds
    )
    for (r, k, s), column in made.layers.items():
        counts[k][r, s] = round(solution.values[column])
    if not made.held:
        return Assignment(counts=counts, cuts=cuts_of(instance, counts))
    cuts = [0]
    for j in range(len(instance.holders)):
        held = sum(round(solution.values[made.held[j, k]]) for k in instance.free_kinds)
        cuts.append(cuts[-1] + held)
    return Assignment(counts=counts, cuts=tuple(cuts))


def strategy_of(
    instance: Instance,
    assignment: Assignment,
    *,
    configuration: Configuration,
    choices: tuple[Choice, ...],
    edges: tuple[Choice, ...],
    device_groups: Sequence[str],
) -> Strategy:
    """Return the resolved strategy that an assignment stands for.

    `device_groups` are by rank. On a rank, blocks of one kind take their choices in the order of
    the choice's place in `choices`, from the first block of the chain on.
    """
    return Strategy(
        tensor_parallel_degree=configuration.tensor_parallel_degree,
        sequence_parallel=configuration.sequence_parallel,
        pipeline_parallel_degree=configuration.pipeline_parallel_degree,
        virtual_pipeline_degree=configuration.virtual_pipeline_degree,
        pipeline_schedule=configuration.pipeline_schedule,
        context_parallel_degree=configuration.context_parallel_degree,
        context_parallel_kind=configuration.context_parallel_kind,
        expert_parallel_degree=configuration.expert_parallel_degree,
        expert_tensor_parallel_degree=configuration.expert_tensor_degree,
        data_parallel_replicate_degree=configuration.data_parallel_replicate_degree,
        data_parallel_shard_degree=configuration.data_parallel_shard_degree,
        micro_batch_size=configuration.micro_batch_size,
        micro_batch_count=configuration.micro_batch_count,
        stages=_stages(instance, assignment, choices=choices, device_groups=device_groups),
        embedding=_edge(instance, assignment, 0, edges),
        head=_edge(instance, assignment, len(instance.kinds) - 1, edges),
    )


def _stages(
    instance: Instance,
    assignment: Assignment,
    *,
    choices: tuple[Choice, ...],
    device_groups: Sequence[str],
) -> tuple[Stage, ...]:
    """Return every virtual stage with its blocks, a group for each change of choice."""
    left = [counts.copy() for counts in assignment.counts]
    is_virtual = instance.least_blocks > 1
    stages = []
    for j, holder in enumerate(instance.holders):
        groups = []
        for block in range(assignment.cuts[j], assignment.cuts[j + 1]):
            k = int(instance.block_kinds[block])
            s = _next_choice(instance.kinds[k], left[k][holder], holder, is_virtual=is_virtual)
            left[k][holder, s] -= 1
            groups.append(_group(block, 1, choices[instance.kinds[k].choice[s]]))
        stages.append(
            Stage(stage=j, device_group=device_groups[holder], layers=tuple(_merged(groups)))
        )
    return tuple(stages)


def _next_choice(kind: Kind, left: Integers, rank: int, *, is_virtual: bool) -> int:
    """Return the choice that the rank's next block of the kind takes, of those that are `left`.

    On a rank with several virtual stages the earlier ones hold more micro-batches, so that blocks
    that keep the least come first.
    """
    waiting = np.flatnonzero(left)
    if not is_virtual:
        return int(waiting[0])
    return int(waiting[kind.kept[rank, waiting].argmin()])


def _group(first: int, count: int, choice: Choice) -> LayerGroup:
    return LayerGroup(
        first_block=first,
        block_count=count,
        zero_stage=choice.zero_stage,
        activation_checkpointing=choice.activation_checkpointing,
        offload=choice.offload,
    )


def _merged(groups: list[LayerGroup]) -> list[LayerGroup]:
    """Return the groups with neighbours of equal choice joined."""
    merged: list[LayerGroup] = []
    for group in groups:
        last = merged[-1] if merged else None
        if last is not None and _choice_key(last) == _choice_key(group):
            joined = last.block_count + group.block_count
            merged[-1] = last.model_copy(update={"block_count": joined})
        else:
            merged.append(group)
    return merged


def _choice_key(group: LayerGroup) -> tuple[object, ...]:
    return (group.zero_stage, group.activation_checkpointing, group.offload)


def _edge(
    instance: Instance, assignment: Assignment, k: int, edges: tuple[Choice, ...]
) -> EdgeChoice:
    _, s = np.argwhere(assignment.counts[k] > 0)[0]
    choice = edges[instance.kinds[k].choice[s]]
    return EdgeChoice(zero_stage=choice.zero_stage, offload=choice.offload)
