"""Groups: the ranks of every configuration that collectives run over, each placed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from planner.cost.configuration import Floats
from planner.cost.group import Group

if TYPE_CHECKING:
    from planner.cost.setting import Setting


@dataclass(frozen=True, kw_only=True, eq=False)
class Groups:
    """The groups of a setting, which are placed when they are asked for; arrays as there."""

    setting: Setting

    @cached_property
    def tensor(self) -> Group:
        """Return the tensor-parallel ranks."""
        return self._group(self.setting.tensor, 1.0)

    @cached_property
    def context(self) -> Group:
        """Return the context-parallel ranks."""
        return self._group(self.setting.context, self.setting.tensor)

    @cached_property
    def expert(self) -> Group:
        """Return the expert-parallel ranks."""
        return self._group(self.setting.expert, self.setting.expert_tensor)

    @cached_property
    def split_expert(self) -> Group:
        """Return the ranks that share experts' matrices where each holds tokens of its own."""
        spread = self.setting.sequence_parallel & (self.setting.expert > 1.0)
        split = spread | self.setting.has_own_experts
        return self._group(np.where(split, self.setting.expert_tensor, 1.0), 1.0)

    @cached_property
    def own_expert(self) -> Group:
        """Return the tensor-parallel ranks where each is left with the output of its own tokens."""
        apart = self.setting.has_own_experts & ~self.setting.sequence_parallel
        return self._group(np.where(apart, self.setting.tensor, 1.0), 1.0)

    @cached_property
    def shard(self) -> Group:
        """Return the ranks that dense states are sharded over."""
        return self._group(self.setting.data_shard, self.setting.tensor)

    @cached_property
    def expert_shard(self) -> Group:
        """Return the ranks that states of the same experts are sharded over."""
        return self._group(
            self.setting.expert_shard, self.setting.expert_tensor * self.setting.expert
        )

    @cached_property
    def data(self) -> Group:
        """Return all ranks that have the same dense parameters."""
        return self._group(self.setting.data_shard * self.setting.replicate, self.setting.tensor)

    @cached_property
    def expert_data(self) -> Group:
        """Return all ranks that have the same experts."""
        return self._group(
            self.setting.expert_shard * self.setting.replicate,
            self.setting.expert_tensor * self.setting.expert,
        )

    @cached_property
    def replica(self) -> Group:
        """Return the ranks that hold the same shard."""
        return self._group(self.setting.replicate, self.setting.tensor * self.setting.data_shard)

    def _group(self, rank_count: Floats, stride: Floats | float) -> Group:
        return Group(rank_count=rank_count, stride=stride, levels=self.setting.hardware.levels)
