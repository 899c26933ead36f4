"""Blocks: a strategy's layers one by one, for what a target counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from planner.exporters.canonical import canonical
from planner.schema.strategy import LayerGroup, Stage, Strategy

Change = Callable[[int, LayerGroup], Mapping[str, object]]


def with_blocks(strategy: Strategy, change: Change) -> Strategy:
    """Return the strategy with what `change` says of each block, by its place in its stage."""
    stages = tuple(_changed(stage, change) for stage in strategy.stages or ())
    return canonical(strategy.model_copy(update={"stages": stages}))


def _changed(stage: Stage, change: Change) -> Stage:
    groups: list[LayerGroup] = []
    place = 0
    for group in stage.layers:
        for offset in range(group.block_count):
            update: dict[str, object] = {
                "first_block": group.first_block + offset,
                "block_count": 1,
                **change(place, group),
            }
            groups.append(group.model_copy(update=update))
            place += 1
    return stage.model_copy(update={"layers": tuple(groups)})


def evenly(strategy: Strategy, block_count: int, batch: int) -> Strategy:
    """Return the strategy, treated alike everywhere, with blocks spread evenly."""
    group = (strategy.stages or ())[0].layers[0]
    spread = strategy.model_copy(
        update={
            "stages": None,
            "zero_stage": group.zero_stage,
            "activation_checkpointing": group.activation_checkpointing,
            "offload": group.offload,
        }
    )
    return canonical(spread.resolved(block_count=block_count, global_batch_size=batch))
