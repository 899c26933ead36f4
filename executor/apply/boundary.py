"""Boundary: the shapes that cross from one pipeline stage to the next."""

from __future__ import annotations

import torch


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

    def inputs(self, *, is_first: bool) -> torch.Tensor:
        """Return an example of what the stage receives, on the meta device."""
        if is_first:
            return torch.empty(self._tokens, dtype=torch.long, device="meta")
        return self._hidden_states()

    def outputs(self, *, is_last: bool) -> torch.Tensor:
        """Return an example of what the stage sends; the last one's stays with the loss."""
        return self._hidden_states() if not is_last else self._hidden_states().sum()

    def _hidden_states(self) -> torch.Tensor:
        return torch.empty(self._hidden, dtype=self._dtype, device="meta", requires_grad=True)
