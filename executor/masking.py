"""Masking: targets that count for nothing, and one mean over all others, whatever the layout.

With n_i targets that count in micro-batch i of a rank, N in the global batch, m micro-batches on
each of d ranks with different tokens, the mean over all that count is

    L = sum_i (n_i / N) L_i = mean over all i of (m d n_i / N) L_i

so that losses are weighed by m d n_i / N before schedules and data parallelism average them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import distributed
from torch.distributed.device_mesh import DeviceMesh

from executor.losses import LossFunction


@dataclass(slots=True, kw_only=True)
class TargetMask:
    """The target that counts for nothing, and how many of a global batch's others there are.

    `data` holds the ranks with different tokens, each with `micro_batch_count` micro-batches.
    """

    ignored_target: int
    data: DeviceMesh
    micro_batch_count: int
    _counted: torch.Tensor = field(default_factory=lambda: torch.ones(()))

    def count(self, targets: torch.Tensor) -> None:
        """Count the targets of a global batch, of which these are the rank's. All must call it."""
        counted = self._counting(targets)
        distributed.all_reduce(counted, group=self.data.get_group())
        self._counted = counted.clamp(min=1)

    def of(self, loss_function: LossFunction) -> LossFunction:
        """Return `loss_function`, a mean over targets that count, weighed by how many they are.

        Where none does, the mean is that of nothing: it is taken of other targets, and weighs 0.
        """
        share_count = self.data.size() * self.micro_batch_count

        def weighed(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            own = self._counting(targets)
            some = torch.where(own > 0, targets, torch.zeros_like(targets))
            return loss_function(logits, some) * (share_count * own / self._counted)

        return weighed

    def _counting(self, targets: torch.Tensor) -> torch.Tensor:
        return (targets != self.ignored_target).sum()
