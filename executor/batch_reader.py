"""Batch reader: from what a script hands to a step to the micro-batches that this rank computes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from executor.batch import Batch, GivenBatch, check_given
from executor.errors import ModelMismatchError
from executor.masking import BatchSplit, MicroBatches
from executor.models.forward_inputs import ForwardInputs
from executor.models.huggingface_inputs import SEGMENTS
from executor.models.positions import SEQUENCE_DIMENSION, SequencePart
from executor.planned import PlannedBatch

_WHOLE = (SEGMENTS,)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReader:
    """What the model takes, what the plan has of it, and which part of it is this rank's.

    A rank is given whole sequences; where ranks share them, `part` is taken here, when what depends
    on a token's neighbours is known: the label that it has to predict, and what it sees.
    """

    inputs: ForwardInputs
    target_name: str
    planned: PlannedBatch
    part: SequencePart
    split: BatchSplit

    def read(self, given: GivenBatch, *, field: str) -> Batch:
        """Return the batch that a script gave, as the model takes it.

        Raises:
            ModelMismatchError: if it is no batch, or has what the model does not take.
        """
        check_given(given, field=field)
        return self.inputs.read(given, target_name=self.target_name, field=field)

    def micro_batches(self, given: GivenBatch, *, may_be_short: bool) -> MicroBatches:
        """Return the micro-batches of this rank's sequences; a collective call.

        Raises:
            ModelMismatchError: if they are not what a rank takes of a planned batch.
        """
        batch = self.read(given, field=self.planned.field)
        self.planned.check(batch, may_be_short=may_be_short)
        return self.split.of(self._prepared(batch))

    def remember(self, given: GivenBatch) -> None:
        """Take a sequence of a global batch for when this rank has none of its own."""
        row = self.read(given, field=self.planned.field).rows(0, 1)
        self.split.remember(self._prepared(row))

    def _prepared(self, batch: Batch) -> Batch:
        return self.part_of(self.inputs.prepare(self.inputs.complete(batch)))

    def part_of(self, batch: Batch) -> Batch:
        """Return this rank's tokens of a batch of whole sequences.

        Raises:
            ModelMismatchError: if a tensor has another length than the sequences.
        """
        if self.part.count == 1:
            return batch
        length = batch.first.shape[SEQUENCE_DIMENSION]
        for name, tensor in batch:
            is_split = tensor.dim() > 1 and name not in _WHOLE
            if is_split and tensor.shape[SEQUENCE_DIMENSION] != length:
                raise ModelMismatchError(
                    f"ranks share sequences of {length} tokens, and this has another length",
                    field=self.planned.field,
                    value=f"{name} of shape {tuple(tensor.shape)}",
                    remedy="yield a value for each token, or plan with context_parallel_degree "
                    "limited to 1",
                )
        return batch.changed(self._own_tokens, but=_WHOLE)

    def _own_tokens(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.part.of(tensor) if tensor.dim() > 1 else tensor
