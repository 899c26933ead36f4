"""Virtual stages: which pieces of the chain a pipeline rank holds, and what becomes of each.

Under GPipe and 1F1B a rank holds one stage of the chain. Under the interleaved schedule ranks take
stages in turn, so that p ranks with v virtual stages each hold

    rank r: r, r + p, r + 2p, ...

and under ZB-V and DualPipeV the chain goes down the ranks and comes back up:

    rank r: r, 2p - 1 - r
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from executor.apply.zero import GradientSync
from planner.schema.strategy import V_SCHEDULES, Stage, Strategy

_PREFIX = "virtual_stage_"


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualStage:
    """One piece of the chain on this rank: its place among `count`, its plan and its module."""

    index: int
    count: int
    plan: Stage
    module: nn.Module
    gradient_sync: GradientSync

    @property
    def is_first(self) -> bool:
        """Return whether it holds the embedding and takes the batch."""
        return self.index == 0

    @property
    def is_last(self) -> bool:
        """Return whether it holds the head and computes the loss."""
        return self.index == self.count - 1


def held_stages(strategy: Strategy, pipeline_rank: int) -> tuple[int, ...]:
    """Return the virtual stages of a pipeline rank, in the order of the chain."""
    degree = strategy.pipeline_parallel_degree
    if strategy.pipeline_schedule in V_SCHEDULES and degree > 1:
        return (pipeline_rank, 2 * degree - 1 - pipeline_rank)
    return tuple(range(pipeline_rank, strategy.virtual_stage_count, degree))


def rank_model(stages: Sequence[VirtualStage]) -> nn.Module:
    """Return all that this rank trains as one module: the only stage's own, or all of them.

    Several are kept under `virtual_stage_N`, since their parts have the same names;
    `name_in_stage` takes that off.
    """
    if len(stages) == 1:
        return stages[0].module
    return nn.ModuleDict({f"{_PREFIX}{stage.index}": stage.module for stage in stages})


def name_in_stage(name: str) -> str:
    """Return the name of a parameter of `rank_model` inside its own stage's module."""
    first, _, rest = name.partition(".")
    is_container = first.startswith(_PREFIX) and first.removeprefix(_PREFIX).isdigit()
    return rest if is_container else name
