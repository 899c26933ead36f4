"""Boundary: the shapes that cross from one pipeline stage to the next."""

from __future__ import annotations

import torch

from executor.precision import compute_dtype
from planner.schema.plan import Plan


class StageBoundary:
    """Shapes at the ends of a stage for one micro-batch, so that torch need not trace them."""

    def __init__(
        self,
        *,
        micro_batch_size: int,
        sequence_length: int,
        local_sequence_length: int,
        hidden_size: int,
        dtype: torch.dtype,
    ) -> None:
        self._tokens = (micro_batch_size, sequence_length)
        self._hidden = (micro_batch_size, local_sequence_length, hidden_size)
        self._dtype = dtype
        self._parts = max(sequence_length // max(local_sequence_length, 1), 1)

    @staticmethod
    def of(plan: Plan, hidden_size: int) -> StageBoundary:
        """Return what a plan's stages hand on, with blocks of so many elements a token."""
        job, strategy = plan.job.resolved, plan.strategy
        length = (job.sequence_length or 0) // strategy.context_parallel_degree
        parts = strategy.tensor_parallel_degree if strategy.sequence_parallel else 1
        return StageBoundary(
            micro_batch_size=strategy.micro_batch_size,
            sequence_length=length,
            local_sequence_length=length // parts,
            hidden_size=hidden_size,
            dtype=compute_dtype(job.precision),
        )

    def inputs(self, *, is_first: bool) -> torch.Tensor:
        """Return an example of what the stage receives, on the meta device."""
        if is_first:
            return torch.empty(self._tokens, dtype=torch.long, device="meta")
        return self._hidden_states()

    def outputs(self, *, is_last: bool) -> torch.Tensor:
        """Return an example of what the stage sends; the last one's stays with the loss."""
        return self._hidden_states() if not is_last else self._hidden_states().sum()

    def hidden_of(self, first: torch.Tensor, device: torch.device) -> torch.Tensor:
        """Return room for what a stage receives of a batch whose tokens [B, S] are `first`."""
        rows, length, width = first.shape[0], first.shape[1], self._hidden[-1]
        return torch.empty((rows, length // self._parts, width), dtype=self._dtype, device=device)

    def _hidden_states(self) -> torch.Tensor:
        return torch.empty(self._hidden, dtype=self._dtype, device="meta", requires_grad=True)
