"""Planned data: how a plan's ranks read batches, once it is known what the model takes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from executor.apply.context_parallel import sequence_part
from executor.batch_reader import BatchReader
from executor.data import DataShare
from executor.data_position import DataPlace
from executor.losses import (
    LossFunction,
    check_mean,
    check_without_parameters,
    ignored_target_of,
    is_mean_of_parts,
    target_weights_of,
)
from executor.masking import BatchSplit
from executor.mesh import RankMesh
from executor.models.declaration import ModelDeclaration
from executor.planned import PlannedBatch
from planner.schema.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedData:
    """What the plan and this rank's place say of batches."""

    plan: Plan
    mesh: RankMesh
    device: torch.device

    @property
    def global_batch_size(self) -> int:
        """Return how many sequences a step takes, of all ranks together."""
        strategy = self.plan.strategy
        count = strategy.micro_batch_count or 1
        return strategy.micro_batch_size * count * self.mesh.data_degree

    def reader(
        self,
        declaration: ModelDeclaration,
        *,
        loss_function: LossFunction,
        target_name: str,
        ignored_target: int | None,
    ) -> BatchReader:
        """Return how this rank comes from a batch to micro-batches.

        Without an `ignored_target` it is the loss that says which target counts for nothing, and
        else what the model's labels have.

        Raises:
            ModelMismatchError: if the loss is a sum, or learns.
        """
        strategy, inputs = self.plan.strategy, declaration.inputs
        class_count, ignored = _vocabulary_size(declaration), ignored_target
        check_without_parameters(loss_function, class_count)
        check_mean(loss_function, class_count)
        if ignored is None:
            ignored = ignored_target_of(loss_function, class_count)
        if ignored is None:
            ignored = inputs.ignored_label
        part = sequence_part(self.mesh, strategy.context_parallel_kind)
        split = strategy.tensor_parallel_degree if strategy.sequence_parallel else 1
        return BatchReader(
            inputs=inputs,
            target_name=target_name,
            length_multiple=part.piece_count * split,
            planned=self._planned(declaration, ignored).share(
                sequence_count=self.global_batch_size // self.mesh.data_degree
            ),
            part=part,
            split=BatchSplit(
                data=self.mesh.data,
                micro_batch_size=strategy.micro_batch_size,
                planned_count=strategy.micro_batch_count or 1,
                is_pipeline=strategy.pipeline_parallel_degree > 1,
                ignored_target=ignored,
                target_weights=target_weights_of(
                    loss_function, class_count, ignored_target=ignored
                ),
            ),
        )

    def loss_differences(self, loss_function: LossFunction, reader: BatchReader) -> Iterator[str]:
        """Yield a sentence if a loss is another number for a batch than the mean of its parts."""
        pieces = self.global_batch_size // self.plan.strategy.micro_batch_size
        if pieces == 1:
            return
        count, split = reader.planned.vocabulary_size, reader.split
        if not is_mean_of_parts(
            loss_function,
            count,
            ignored_target=split.ignored_target,
            target_weights=split.target_weights,
        ):
            yield (
                f"loss_function is no mean over rows: what is trained is the mean of the {pieces} "
                "micro-batches' losses, and not the loss of the whole batch"
            )

    def share(
        self, declaration: ModelDeclaration, reader: BatchReader, *, per_rank: bool = False
    ) -> DataShare:
        """Return which rows of a loader's batches are this rank's: all, if it is `per_rank`."""
        planned = self._planned(declaration, reader.split.ignored_target)
        return DataShare(
            planned=planned.of_rank(self.mesh.data_degree) if per_rank else planned,
            translate=declaration.inputs.translate,
            read=partial(reader.read, field="loader"),
            place=DataPlace(
                index=self.mesh.data_index, degree=self.mesh.data_degree, reads_alone=per_rank
            ),
            device=self.device,
        )

    def _planned(self, declaration: ModelDeclaration, ignored_target: int | None) -> PlannedBatch:
        return PlannedBatch(
            sequence_count=self.global_batch_size,
            sequence_length=self.plan.job.resolved.sequence_length,
            vocabulary_size=_vocabulary_size(declaration),
            ignored_target=ignored_target,
        )


def _vocabulary_size(declaration: ModelDeclaration) -> int | None:
    known = declaration.shapes.vocabulary_size
    return known if known > 1 else None  # what does not say has 1
