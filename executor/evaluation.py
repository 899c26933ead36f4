"""Evaluation: the mean loss over all batches of a loader, in every layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from executor.apply.forward_pass import ForwardPass
from executor.apply.schedule import MicroBatchLoss
from executor.batch import GivenBatch, changed_tensors
from executor.batch_reader import BatchReader
from executor.data import DataShare, check_global
from executor.errors import ModelMismatchError

MeanOverRanks = Callable[[torch.Tensor | None], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A forward pass, a loss, and how a rank comes to its rows of a global batch.

    The loss is a mean over targets that count, so that batches weigh as they have of these.
    """

    forward: ForwardPass
    loss_function: MicroBatchLoss
    reader: BatchReader
    share: DataShare

    def mean_loss(self, loader: Iterable[GivenBatch], mean_over_ranks: MeanOverRanks) -> float:
        """Return the mean loss over the global batches of `loader`, the same on every rank.

        Raises:
            ModelMismatchError: if one is not what the model takes, or there is none.
        """
        total, counted = 0.0, 0.0
        for given in map(self.share.translate, loader):
            if counted == 0:
                check_global(given)
            batch = self.share.read(given)
            self.share.planned.check(batch, may_be_short=True)
            on_device = changed_tensors(given, lambda item: item.to(self.share.device))
            self.reader.remember(on_device)
            rows = self.share.rows_of(on_device, batch.row_count)
            micro_batches = self.reader.micro_batches(rows, may_be_short=True)
            losses = []
            for item in micro_batches.items:
                outputs = self.forward.run(item.batch)
                if outputs is not None:
                    losses.append(self.loss_function(outputs, item))
            mean = torch.stack(losses).mean() if losses else None
            total += mean_over_ranks(mean) * micro_batches.counted
            counted += micro_batches.counted
        if counted == 0:
            raise ModelMismatchError(
                "has no target that counts",
                field="trainer.evaluate",
                value="an empty loader, or targets that are all left out",
                remedy="give a loader with batches; a generator yields each of them once",
            )
        return total / counted
