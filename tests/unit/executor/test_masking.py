"""The weights of a batch's micro-batches make one mean of theirs over all targets that count."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from executor.batch import Batch
from executor.masking import BatchSplit, MicroBatch, micro_batch_loss

WEIGHTS = torch.tensor([0.5, 2.0, 0.0, 7.0], dtype=torch.float64)


@dataclass(frozen=True, slots=True)
class OneRank:
    """Data ranks, of which there is one."""

    def size(self) -> int:
        """Return how many there are."""
        return 1


def pieces(targets: list[list[int]], ignored: int | None, *, weighted: bool) -> list[MicroBatch]:
    split = BatchSplit(
        data=OneRank(),  # type: ignore[arg-type]
        micro_batch_size=1,
        planned_count=len(targets),
        is_pipeline=False,
        ignored_target=ignored,
        target_weights=WEIGHTS if weighted else None,
    )
    given = torch.tensor(targets)
    logits = torch.randn(*given.shape, 4, generator=torch.Generator().manual_seed(0)).double()
    return split.of(Batch(arguments=(logits,), named={}, targets=given)).items


def mean(items: list[MicroBatch], ignored: int, weights: torch.Tensor | None) -> torch.Tensor:
    """Return the mean of the losses of micro-batches, whose logits are their inputs."""

    def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        flat = logits.flatten(0, 1), targets.flatten()
        return functional.cross_entropy(*flat, weights, ignore_index=ignored)

    weighed = micro_batch_loss(loss)
    return torch.stack([weighed(item.batch.arguments[0], item) for item in items]).mean()


def test_weighted_targets_have_the_mean_of_the_whole_batch() -> None:
    """One micro-batch has nothing that weighs, and one a target that is left out."""
    targets = [[0, 1, 3], [2, 2, 2], [1, -100, 1], [3, 0, 0]]
    items = pieces(targets, -100, weighted=True)
    logits = torch.cat([item.batch.arguments[0] for item in items])
    whole = functional.cross_entropy(logits.flatten(0, 1), torch.tensor(targets).flatten(), WEIGHTS)
    torch.testing.assert_close(mean(items, -100, WEIGHTS), whole, rtol=1e-14, atol=0)


def test_a_micro_batch_of_padding_alone_weighs_nothing_where_padding_is_the_first_class() -> None:
    targets = [[0, 0, 0], [1, 2, 0]]
    items = pieces(targets, 0, weighted=False)
    logits = items[1].batch.arguments[0][0]
    expected = functional.cross_entropy(logits[:2], torch.tensor([1, 2]))
    torch.testing.assert_close(mean(items, 0, None), expected, rtol=1e-14, atol=0)
