"""Data: global batches, this rank's rows of them, and the shipped corpus.

Every rank reads the same global batches and keeps its own rows, so that a run sees the same
sequences whatever its layout. The last batch of a loader may have fewer. A run that goes on from a
checkpoint passes over the batches that were taken before it, or hands a loader that can tell its
own state back to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from itertools import islice

import torch
from torch import distributed

from executor.agreement import everyone
from executor.batch import Batch, GivenBatch, changed_tensors, given_tensors
from executor.data_position import DataPlace, DataPosition, mark_of, not_global
from executor.errors import ModelMismatchError
from executor.planned import PlannedBatch

BYTE_VALUES = 256

Read = Callable[[GivenBatch], Batch]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataShare:
    """What a global batch is, how it is read, which rows of it are a rank's, and where they go."""

    planned: PlannedBatch
    translate: Callable[[GivenBatch], GivenBatch]
    read: Read
    place: DataPlace
    device: torch.device

    @property
    def global_batch_size(self) -> int:
        """Return how many sequences all ranks together take of a batch."""
        loaders = self.place.degree if self.place.reads_alone else 1
        return self.planned.sequence_count * loaders

    def batches(self, loader: Iterable[GivenBatch]) -> Iterator[GivenBatch]:
        """Yield what a loader has, translated; of ranks' own, while all of them have something.

        Raises:
            ModelMismatchError: on every rank, if some have ended before others.
        """
        if not self.place.reads_alone:
            yield from map(self.translate, loader)
            return
        own = map(self.translate, loader)
        while True:
            found = list(islice(own, 1))
            ended = torch.tensor([not found, bool(found)], device=self.device).int()
            distributed.all_reduce(ended, distributed.ReduceOp.MAX)
            if bool(ended.all()):
                raise ModelMismatchError(
                    "ranks' own loaders have other numbers of batches",
                    field="loader",
                    value="ended on some ranks",
                    remedy="pick rows by session.sampler(dataset), which gives each rank as many, "
                    "or leave the last ones out",
                )
            if not found:
                return
            yield from found

    def rows_of(self, given: GivenBatch, row_count: int) -> GivenBatch:
        """Return this rank's rows of a global batch of `row_count`: as many as others, or one less.

        Of one that is not whole the first ranks have one more.
        """
        degree, index = (1, 0) if self.place.reads_alone else (self.place.degree, self.place.index)
        whole, over = divmod(row_count, degree)
        first = index * whole + min(index, over)
        last = first + whole + (index < over)
        return changed_tensors(given, lambda tensor: tensor[first:last].to(self.device))


def shard(
    loader: Iterable[GivenBatch],
    share: DataShare,
    position: DataPosition,
    *,
    is_positioned: bool = False,
) -> Iterator[GivenBatch]:
    """Yield this rank's rows of each global batch that is still to be taken.

    Raises:
        ModelMismatchError: if a batch is not the plan's; the last one may have fewer rows.
    """
    position.meet(
        loader, share.place, batch_size=share.global_batch_size, is_positioned=is_positioned
    )
    position.begin_pass(share.device)
    short, resumptions = 0, position.resumptions
    reads_on = not isinstance(loader, Iterator)
    for given in _of_pass(share.batches(loader), position, reads_on=reads_on):
        if position.resumptions != resumptions:
            raise _gone_back()
        if short:
            share.planned.refuse_short(short)
        batch = share.read(given)
        row_count = batch.row_count
        is_taken = position.to_skip > 0
        share.planned.check(batch, may_be_short=position.taken > 0 or is_taken)
        short = row_count if row_count < share.planned.sequence_count else 0
        if is_taken:
            position.pass_over(given, share.device)
            continue
        position.take(given)
        yield share.rows_of(given, row_count)


def _of_pass(
    batches: Iterator[GivenBatch], position: DataPosition, *, reads_on: bool
) -> Iterator[GivenBatch]:
    """Yield what was, or is, taken in this pass; a loader that `reads_on` may come to its own end.

    It may count its passes there. What an iterator has left is another pass's.
    """
    while reads_on or not position.is_pass_over:
        found = list(islice(batches, 1))
        if not found or position.is_pass_over:
            return
        yield from found


def check_global(given: GivenBatch) -> None:
    """Return if every rank has the batch; a collective call.

    Raises:
        ModelMismatchError: on every rank, if one has another.
    """
    marks = everyone(mark_of(*given_tensors(given)))
    for rank, mark in enumerate(marks):
        if mark != marks[0]:
            raise not_global(rank, 0)


def check_same_rows(given: GivenBatch, data_index: int) -> None:
    """Return if ranks with the same `data_index` have the same rows; a collective call.

    Raises:
        ModelMismatchError: on every rank, if one has others.
    """
    marks: list[tuple[int, int]] = everyone((data_index, mark_of(*given_tensors(given))))
    firsts: dict[int, tuple[int, int]] = {}
    for rank, (index, mark) in enumerate(marks):
        first, expected = firsts.setdefault(index, (rank, mark))
        if mark != expected:
            raise ModelMismatchError(
                "must be given the same rows on ranks with the same session.data_index",
                field="trainer.step",
                value=f"others on rank {rank} than on rank {first}",
                remedy="give it what session.shard(loader) yields, and let what changes a batch "
                "draw alike on all ranks",
            )


def _gone_back() -> ModelMismatchError:
    return ModelMismatchError(
        "trainer.load() has gone back to another place in the data while batches were taken",
        field="session.shard",
        value="the batches of before",
        remedy="begin again: for batch in session.shard(loader), which passes over those taken",
    )


def corpus_tokens() -> torch.Tensor:
    """Return the shipped corpus, one token a byte."""
    content = resources.files("executor.corpus").joinpath("shakespeare.txt").read_bytes()
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).long()


def corpus_batches(
    *, global_batch_size: int, sequence_length: int, seed: int = 0
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield windows of the corpus without end: tokens and the tokens that follow, each [B, S].

    Raises:
        ModelMismatchError: if the corpus is shorter than one sequence.
    """
    tokens = corpus_tokens()
    starts_count = len(tokens) - sequence_length
    if starts_count <= 0:
        raise ModelMismatchError(
            f"the shipped corpus has {len(tokens)} tokens",
            field="job.sequence_length",
            value=sequence_length,
            remedy="plan a shorter sequence, or train on your own data with a script",
        )
    generator = torch.Generator().manual_seed(seed)
    offsets = torch.arange(sequence_length + 1)
    while True:
        starts = torch.randint(starts_count, (global_batch_size, 1), generator=generator)
        windows = tokens[starts + offsets]
        yield windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
