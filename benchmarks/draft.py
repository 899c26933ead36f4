"""A draft: a strategy as one choice for each block and a list of cuts, easy to change at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from planner.cost.configuration import Choice, Configuration
from planner.cost.price_list import configuration_of, device_order_of
from planner.cost.schedule import rank_of_virtual_stage
from planner.hardware import ClusterHardware
from planner.schema.strategy import EdgeChoice, LayerGroup, Stage, Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A configuration, where the chain is cut, and what is chosen for every layer.

    `cuts` [virtual stages + 1] starts with 0 and ends with the number of blocks.
    """

    configuration: Configuration
    cuts: tuple[int, ...]
    choices: tuple[Choice, ...]
    embedding: Choice
    head: Choice


def even_cuts(block_count: int, stage_count: int) -> tuple[int, ...]:
    """Return cuts into stages that differ by one block at most."""
    return tuple(block_count * index // stage_count for index in range(stage_count + 1))


def virtual_stage_count(configuration: Configuration) -> int:
    """Return into how many stages a configuration cuts the chain."""
    return configuration.pipeline_parallel_degree * configuration.virtual_pipeline_degree


def draft_of(strategy: Strategy, hardware: ClusterHardware) -> Draft:
    """Return a resolved strategy as a draft.

    Raises:
        ValueError: if the strategy is not resolved.
    """
    stages, embedding, head = strategy.stages, strategy.embedding, strategy.head
    if stages is None or embedding is None or head is None:
        raise ValueError("the strategy must be resolved")
    cuts = [0]
    for stage in stages:
        cuts.append(cuts[-1] + stage.block_count)
    return Draft(
        configuration=configuration_of(strategy, device_order=device_order_of(strategy, hardware)),
        cuts=tuple(cuts),
        choices=tuple(
            Choice(
                zero_stage=group.zero_stage,
                activation_checkpointing=group.activation_checkpointing,
                offload=group.offload,
            )
            for stage in stages
            for group in stage.layers
            for _ in range(group.block_count)
        ),
        embedding=Choice(zero_stage=embedding.zero_stage, offload=embedding.offload),
        head=Choice(zero_stage=head.zero_stage, offload=head.offload),
    )


def strategy_of(draft: Draft, hardware: ClusterHardware) -> Strategy:
    """Return the resolved strategy that a draft stands for."""
    c = draft.configuration
    return Strategy(
        tensor_parallel_degree=c.tensor_parallel_degree,
        sequence_parallel=c.sequence_parallel,
        pipeline_parallel_degree=c.pipeline_parallel_degree,
        virtual_pipeline_degree=c.virtual_pipeline_degree,
        pipeline_schedule=c.pipeline_schedule,
        context_parallel_degree=c.context_parallel_degree,
        context_parallel_kind=c.context_parallel_kind,
        expert_parallel_degree=c.expert_parallel_degree,
        expert_tensor_parallel_degree=c.expert_tensor_degree,
        data_parallel_replicate_degree=c.data_parallel_replicate_degree,
        data_parallel_shard_degree=c.data_parallel_shard_degree,
        micro_batch_size=c.micro_batch_size,
        micro_batch_count=c.micro_batch_count,
        stages=_stages(draft, hardware),
        embedding=_edge(draft.embedding),
        head=_edge(draft.head),
    )


def _stages(draft: Draft, hardware: ClusterHardware) -> tuple[Stage, ...]:
    c = draft.configuration
    kinds = hardware.stage_kinds(
        c.device_order, pipeline_parallel_degree=c.pipeline_parallel_degree
    )
    stages = []
    for index, (first, end) in enumerate(pairwise(draft.cuts)):
        rank = rank_of_virtual_stage(
            c.pipeline_schedule,
            pipeline_parallel_degree=c.pipeline_parallel_degree,
            virtual_stage=index,
        )
        stages.append(
            Stage(
                stage=index,
                device_group=hardware.kinds[kinds[rank]].device_group,
                layers=_groups(draft.choices[first:end], first),
            )
        )
    return tuple(stages)


def _groups(choices: Sequence[Choice], first: int) -> tuple[LayerGroup, ...]:
    groups = []
    for choice, alike in groupby(choices):
        count = len(list(alike))
        groups.append(
            LayerGroup(
                first_block=first,
                block_count=count,
                zero_stage=choice.zero_stage,
                activation_checkpointing=choice.activation_checkpointing,
                offload=choice.offload,
            )
        )
        first += count
    return tuple(groups)


def _edge(choice: Choice) -> EdgeChoice:
    return EdgeChoice(zero_stage=choice.zero_stage, offload=choice.offload)
