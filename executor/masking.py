"""Masking: targets that count for nothing, and one mean over all others, whatever the layout.

With n_i targets that count in micro-batch i of a rank, N in the global batch, m micro-batches on
each of d ranks with different tokens, the mean over all that count is (of targets that a loss
weighs by class, n_i and N are sums of their weights)

    L = sum_i (n_i / N) L_i = mean over all i of (m d n_i / N) L_i

so that losses are weighed by m d n_i / N before schedules and data parallelism average them. So are
those of a batch with fewer sequences than the plan's, as a loader's last one has: ranks that have
none left, or too few to fill a pipeline's micro-batch, compute a sequence that weighs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import distributed
from torch.distributed.device_mesh import DeviceMesh

from executor.batch import Batch
from executor.errors import ModelMismatchError
from executor.losses import LossFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """What one forward takes. Sequences behind the first `row_count` only fill it up.

    The mean loss of those is multiplied by `weight`, `None` where all micro-batches weigh alike.
    """

    batch: Batch
    row_count: int
    weight: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatches:
    """The micro-batches of a rank, and how many targets of the global batch count, by weight.

    The global batch has `token_share` of the plan's tokens, and this rank's sequences have
    `length_share` of the planned length.
    """

    items: list[MicroBatch]
    counted: float
    token_share: float
    length_share: float


@dataclass(slots=True, kw_only=True)
class BatchSplit:
    """How a rank's sequences of one global batch become micro-batches.

    `data` holds the ranks with different tokens. A pipeline always has `pipeline_count`
    micro-batches of whole size; without one there are as many as the rank with most needs.
    `ignored_target` counts for nothing, and others as `target_weights` [C] say of their classes.
    """

    data: DeviceMesh
    micro_batch_size: int
    planned_count: int
    is_pipeline: bool
    ignored_target: int | None = None
    target_weights: torch.Tensor | None = None
    _spare: Batch | None = field(default=None, repr=False)

    def remember(self, batch: Batch) -> None:
        """Take the first sequence of `batch` where a rank has none of its own."""
        self._spare = batch.rows(0, 1)

    def of(self, batch: Batch, *, length_share: float = 1.0) -> MicroBatches:
        """Return the micro-batches of this rank's sequences; a collective call.

        Sequences have `length_share` of the planned tokens.

        Raises:
            ModelMismatchError: if the first batch ever leaves this rank none.
        """
        by_row = self._counted_by_row(batch.targets)
        planned_rows = self.micro_batch_size * self.planned_count
        tokens = batch.row_count * length_share
        shares = self._all_shares([batch.row_count, sum(by_row), batch.targets.numel(), tokens])
        all_rows, counts, sizes, all_tokens = zip(*shares, strict=True)
        counted = sum(counts)
        token_share = sum(all_tokens) / (planned_rows * len(shares))
        if batch.row_count > 0:
            self.remember(batch)
        is_whole = all(rows == planned_rows for rows in all_rows)
        weigh_alike = counted == sum(sizes) and len(set(sizes)) == 1
        if is_whole and weigh_alike and self.target_weights is None:
            return MicroBatches(
                items=self._pieces(batch, self.planned_count),
                counted=counted,
                token_share=token_share,
                length_share=length_share,
            )
        count = self.planned_count
        if not self.is_pipeline:
            most = int(max(all_rows))
            count = max(1, -(-most // self.micro_batch_size))
        unit = count * len(shares) / counted if counted else 0.0
        items = []
        for index, piece in enumerate(self._pieces(batch, count)):
            first = index * self.micro_batch_size
            weight = unit * sum(by_row[first : first + piece.row_count])
            items.append(self._weighed(piece, weight))
        return MicroBatches(
            items=items, counted=counted, token_share=token_share, length_share=length_share
        )

    def _counted_by_row(self, targets: torch.Tensor) -> list[float]:
        if len(targets) == 0:
            return []
        rows = targets.reshape(len(targets), -1)
        counts = torch.ones_like(rows, dtype=torch.float64)
        if self.ignored_target is not None:
            counts = (rows != self.ignored_target).double()
        if self.target_weights is not None and not rows.is_floating_point():
            weights = self.target_weights.to(rows.device)
            counts = counts * weights[rows.where(counts > 0, self._heaviest)]
        found: list[float] = counts.sum(1).tolist()
        return found

    @property
    def _heaviest(self) -> int:
        """Return a target that counts."""
        if self.target_weights is not None:
            return int(self.target_weights.argmax())
        return 1 if self.ignored_target == 0 else 0

    def _all_shares(self, own: list[float]) -> list[list[float]]:
        """Return what every rank with different tokens has."""
        size = self.data.size()
        if size == 1:
            return [own]
        everyone = torch.zeros((size, len(own)), dtype=torch.float64)
        everyone[self.data.get_local_rank()] = torch.tensor(own, dtype=torch.float64)
        everyone = everyone.to(self.data.device_type)
        distributed.all_reduce(everyone, group=self.data.get_group())
        shares: list[list[float]] = everyone.tolist()
        return shares

    def _pieces(self, batch: Batch, count: int) -> list[MicroBatch]:
        size = self.micro_batch_size
        return [self._piece(batch.rows(i * size, (i + 1) * size)) for i in range(count)]

    def _piece(self, rows: Batch) -> MicroBatch:
        row_count = rows.row_count
        least = self.micro_batch_size if self.is_pipeline else 1
        missing = least - row_count
        if missing <= 0:
            return MicroBatch(batch=rows, row_count=row_count)
        spare = self._spare
        if spare is None:
            raise ModelMismatchError(
                "the first batch leaves a rank without a sequence",
                field="loader",
                value=f"{row_count} sequences on this rank",
                remedy="yield a whole global batch first",
            )
        return MicroBatch(batch=rows.filled(spare, missing), row_count=row_count)

    def _weighed(self, piece: MicroBatch, weight: float) -> MicroBatch:
        batch = piece.batch
        leaves_out = self.ignored_target is not None or self.target_weights is not None
        if weight == 0.0 and leaves_out:
            # The mean of nothing is no number: it is taken of other targets, and weighs 0.
            batch = batch.with_targets(torch.full_like(batch.targets, self._heaviest))
        return MicroBatch(batch=batch, row_count=piece.row_count, weight=weight)


def micro_batch_loss(loss_function: LossFunction) -> Callable[[Any, MicroBatch], torch.Tensor]:
    """Return the loss of what a model has put out of a micro-batch, weighed as it counts."""

    def weighed(outputs: Any, micro_batch: MicroBatch) -> torch.Tensor:
        targets, kept = micro_batch.batch.targets, max(micro_batch.row_count, 1)
        if kept < len(targets):
            outputs, targets = outputs[:kept], targets[:kept]
        loss = loss_function(outputs, targets)
        _check_loss(loss)
        return loss if micro_batch.weight is None else loss * micro_batch.weight

    return weighed


def _check_loss(loss: object) -> None:
    count = loss.numel() if isinstance(loss, torch.Tensor) else None
    if count != 1:
        raise ModelMismatchError(
            "must return one number, the mean over targets, as a tensor",
            field="loss_function",
            value=type(loss).__qualname__ if count is None else f"a tensor of {count} numbers",
            remedy="return what torch's losses do with reduction='mean'",
        )
