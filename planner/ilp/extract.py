"""Extract: rounded counts -> stages of consecutive layer groups, in a fixed order."""

from __future__ import annotations

import numpy as np

from planner.cost.configuration import Choice, Configuration
from planner.ilp.formulation import Formulation
from planner.ilp.instance import Counts, Instance
from planner.ilp.solver import Solution
from planner.schema.strategy import EdgeChoice, LayerGroup, Stage, Strategy


def counts_of(made: Formulation, solution: Solution) -> Counts:
    """Return the layers by [stages, choices] of every run, rounded from the solver's floats."""
    instance = made.instance
    counts = tuple(
        np.zeros((instance.stage_count, len(run.choice)), dtype=np.int64) for run in instance.runs
    )
    for (r, k, s), column in made.layers.items():
        counts[k][r, s] = round(solution.values[column])
    return counts


def strategy_of(
    instance: Instance,
    counts: Counts,
    *,
    configuration: Configuration,
    choices: tuple[Choice, ...],
    edges: tuple[Choice, ...],
    device_group: str,
) -> Strategy:
    """Return the resolved strategy that an assignment stands for.

    Inside a stage, blocks of one run are ordered by the choice's place in `choices`.
    """
    groups: list[list[LayerGroup]] = [[] for _ in range(instance.stage_count)]
    first = 0
    for r in range(instance.stage_count):
        for k in instance.block_runs:
            run = instance.runs[k]
            for s in np.flatnonzero(counts[k][r]):
                choice, count = choices[run.choice[s]], int(counts[k][r, s])
                groups[r].append(_group(first, count, choice))
                first += count
    return Strategy(
        tensor_parallel_degree=configuration.tensor_parallel_degree,
        sequence_parallel=configuration.sequence_parallel,
        pipeline_parallel_degree=configuration.pipeline_parallel_degree,
        virtual_pipeline_degree=configuration.virtual_pipeline_degree,
        pipeline_schedule=configuration.pipeline_schedule,
        context_parallel_degree=configuration.context_parallel_degree,
        expert_parallel_degree=configuration.expert_parallel_degree,
        data_parallel_replicate_degree=configuration.data_parallel_replicate_degree,
        data_parallel_shard_degree=configuration.data_parallel_shard_degree,
        micro_batch_size=configuration.micro_batch_size,
        micro_batch_count=configuration.micro_batch_count,
        stages=tuple(
            Stage(stage=r, device_group=device_group, layers=tuple(_merged(held)))
            for r, held in enumerate(groups)
        ),
        embedding=_edge(instance, counts, 0, edges),
        head=_edge(instance, counts, len(instance.runs) - 1, edges),
    )


def _group(first: int, count: int, choice: Choice) -> LayerGroup:
    return LayerGroup(
        first_block=first,
        block_count=count,
        zero_stage=choice.zero_stage,
        activation_checkpointing=choice.activation_checkpointing,
        offload=choice.offload,
    )


def _merged(groups: list[LayerGroup]) -> list[LayerGroup]:
    """Return the groups with neighbours of equal choice (of different runs) joined."""
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


def _edge(instance: Instance, counts: Counts, k: int, edges: tuple[Choice, ...]) -> EdgeChoice:
    _, s = np.argwhere(counts[k] > 0)[0]
    choice = edges[instance.runs[k].choice[s]]
    return EdgeChoice(zero_stage=choice.zero_stage, offload=choice.offload)
