"""Batch reader: from what a script hands to a step to the micro-batches that this rank computes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from executor.batch import Batch, GivenBatch, check_given
from executor.errors import ModelMismatchError
from executor.masking import BatchSplit, MicroBatches
from executor.models.forward_inputs import ForwardInputs
from executor.models.huggingface_inputs import SEGMENTS
from executor.models.positions import SEQUENCE_DIMENSION, SequencePart
from executor.planned import PlannedBatch, is_text

_WHOLE = (SEGMENTS,)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReader:
    """What the model takes, what the plan has of it, and which part of it is this rank's.

    A rank is given whole sequences; where ranks share them, `part` is taken here, when what depends
    on a token's neighbours is known: the label that it has to predict, and what it sees. Ranks that
    share sequences need lengths that `length_multiple` divides, and those of a pipeline that hand
    them on the planned one.
    """

    inputs: ForwardInputs
    target_name: str
    planned: PlannedBatch
    part: SequencePart
    split: BatchSplit
    length_multiple: int = 1

    def read(self, given: GivenBatch, *, field: str) -> Batch:
        """Return the batch that a script gave, as the model takes it.

        Raises:
            ModelMismatchError: if it is no batch, or has what the model does not take.
        """
        given = self.inputs.translate(given)
        check_given(given, field=field)
        return self.inputs.read(given, target_name=self.target_name, field=field)

    def micro_batches(self, given: GivenBatch, *, may_be_short: bool) -> MicroBatches:
        """Return the micro-batches of this rank's sequences; a collective call.

        Raises:
            ModelMismatchError: if they are not what a rank takes of a planned batch.
        """
        batch = self.read(given, field=self.planned.field)
        self.planned.check(batch, may_be_short=may_be_short)
        planned = self.planned.sequence_length if is_text(batch.first) else None
        share = 1.0 if planned is None else batch.first.shape[SEQUENCE_DIMENSION] / planned
        return self.split.of(self._prepared(batch), length_share=share)

    def remember(self, given: GivenBatch) -> None:
        """Take a sequence of a global batch for when this rank has none of its own."""
        row = self.read(given, field=self.planned.field).rows(0, 1)
        self.split.remember(self._prepared(row))

    def _prepared(self, batch: Batch) -> Batch:
        batch = self.inputs.complete(batch)
        if is_text(batch.first) and self.planned.sequence_length is not None:
            length = batch.first.shape[SEQUENCE_DIMENSION]
            filled = length + -length % self.length_multiple
            if self.split.is_pipeline:
                filled = self.planned.sequence_length
            if filled != length:
                batch = self._of_length(batch, filled)
        return self.part_of(self.inputs.prepare(batch))

    def _of_length(self, batch: Batch, length: int) -> Batch:
        """Return longer sequences with the same loss.

        Raises:
            ModelMismatchError: if it is not known that what is behind them changes nothing.
        """
        targets, ignored = batch.targets, self.split.ignored_target
        if ignored is None or targets.shape != batch.first.shape:
            raise self._of_other_length(batch, length, field=self.planned.field)
        missing = length - targets.shape[SEQUENCE_DIMENSION]
        filled = self.filled_up(batch, missing, field=self.planned.field)
        return filled.with_targets(functional.pad(targets, (0, missing), value=ignored))

    def filled_up(self, batch: Batch, missing: int, *, field: str) -> Batch:
        """Return sequences that are `missing` tokens longer, which those before them do not see.

        Raises:
            ModelMismatchError: if the model is not known to be causal.
        """
        if not self.inputs.is_causal:
            length = batch.first.shape[SEQUENCE_DIMENSION] + missing
            raise self._of_other_length(batch, length, field=field)
        return batch.changed(lambda tensor: functional.pad(tensor, (0, missing)))

    def _of_other_length(self, batch: Batch, length: int, *, field: str) -> ModelMismatchError:
        ranks = "hand on" if self.split.is_pipeline else "share"
        return ModelMismatchError(
            f"ranks {ranks} sequences that are filled up to {length} tokens, and it is not known "
            "that this changes nothing",
            field=field,
            value=f"{batch.first.shape[SEQUENCE_DIMENSION]} tokens",
            remedy=f"fill sequences up to {length} tokens, with targets that count for nothing",
        )

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
