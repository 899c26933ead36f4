"""Data: global batches, this rank's rows of them, and the shipped corpus.

Every rank reads the same global batches and keeps its own rows, so that a run sees the same
sequences whatever its layout. The last batch of a loader may have fewer. A run that goes on from a
checkpoint passes over the batches that were taken before it, or hands a loader that can tell its
own state back to it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib import resources
from itertools import islice
from typing import Any, Protocol, runtime_checkable
from zlib import crc32

import torch
from torch import distributed

from executor.agreement import everyone
from executor.batch import Batch, GivenBatch, changed_tensors, given_tensors
from executor.errors import ModelMismatchError
from executor.planned import PlannedBatch

BYTE_VALUES = 256
# Of a batch so many numbers, evenly spread, tell whether ranks have the same.
_MARKED_NUMBERS = 4096
_OWN_STATES = "data_ranks"


@runtime_checkable
class StatefulLoader(Protocol):
    """A loader that can tell where it is and go back there, as torchdata's can."""

    def state_dict(self) -> dict[str, Any]:
        """Return where it is."""

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Go where `state` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlace:
    """Which of `degree` parts of a global batch a rank takes.

    Where ranks have loaders of their own (`reads_alone`), those at one place read the same rows.
    """

    index: int = 0
    degree: int = 1
    reads_alone: bool = False


@dataclass(slots=True)
class DataPosition:
    """How many global batches were taken, from all loaders together, and what is to be restored.

    `first_mark` tells the first of them that this process took from others. `saved_size` is how
    many sequences those had that were taken before, where a checkpoint says it.
    """

    taken: int = 0
    to_skip: int = 0
    loader: StatefulLoader | None = field(default=None, repr=False)
    loader_state: dict[str, Any] | None = field(default=None, repr=False)
    first_mark: int | None = None
    place: DataPlace = field(default_factory=DataPlace)
    resumptions: int = 0
    saved_size: int | None = None

    def check_alike(self) -> None:
        """Return if ranks that are to read the same took the same first batch; a collective call.

        Raises:
            ModelMismatchError: on every rank, if they did not.
        """
        index = self.place.index if self.place.reads_alone else 0
        marks: list[tuple[int, int | None]] = everyone((index, self.first_mark))
        firsts = {place: rank for rank, (place, _) in reversed(list(enumerate(marks)))}
        for rank, (place, mark) in enumerate(marks):
            first = firsts[place]
            if mark != marks[first][1]:
                raise self._differing(rank, first)
        if self.place.reads_alone and len(firsts) > 1 and len({mark for _, mark in marks}) == 1:
            _warn_of_same_rows(self.first_mark)

    def state(self) -> dict[str, Any] | None:
        """Return the state of the loader, or of all ranks' own; a collective call if they have any.

        `None` where loaders cannot tell it.
        """
        loader = self.loader
        state = loader.state_dict() if isinstance(loader, StatefulLoader) else None
        if not self.place.reads_alone:
            return state
        by_place: dict[int, Any] = dict(reversed(everyone((self.place.index, state))))
        states = [by_place[index] for index in range(self.place.degree)]
        return None if None in states else {_OWN_STATES: states}

    def _own_state(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return what of a saved state is this rank's loader's.

        Raises:
            ModelMismatchError: if loaders read other parts when it was saved.
        """
        saved = state.get(_OWN_STATES)
        degree = self.place.degree if self.place.reads_alone else None
        if (None if saved is None else len(saved)) == degree:
            return state if saved is None else dict(saved[self.place.index])
        was = "global batches" if saved is None else f"rows of one of {len(saved)} data ranks"
        now = "global batches" if degree is None else f"rows of one of {degree} data ranks"
        raise ModelMismatchError(
            f"the checkpoint has the place of loaders that read {was}",
            field="session.shard",
            value=f"a loader of {now}",
            remedy="read data as it was read before, or bring the loader to its place and pass "
            "is_positioned=True",
        )

    def _differing(self, rank: int, first: int) -> ModelMismatchError:
        if not self.place.reads_alone:
            return _not_global(rank, first)
        return ModelMismatchError(
            "must yield the same rows on ranks with the same session.data_index",
            field="loader",
            value=f"another first batch on rank {rank} than on rank {first}",
            remedy="pick rows by session.sampler(dataset), or by data_index and data_degree, "
            "not by the rank",
        )

    def resume(
        self, *, taken: int, loader_state: dict[str, Any] | None, batch_size: int | None = None
    ) -> None:
        """Go on where `taken` batches, each of `batch_size` sequences, were taken."""
        self.taken, self.to_skip, self.loader_state = taken, taken, loader_state
        self.saved_size = batch_size
        self.resumptions += 1

    def meet(self, loader: object, share: DataShare, *, is_positioned: bool) -> None:
        """Take over a loader, and bring it to its place where it can go there itself.

        Raises:
            ModelMismatchError: if nothing says where that is.
        """
        self.place = share.place
        self.loader = loader if isinstance(loader, StatefulLoader) else None
        if is_positioned:
            self.to_skip, self.loader_state = 0, None
        if self.loader is not None and self.loader_state is not None:
            self.loader.load_state_dict(self._own_state(self.loader_state))
            self.to_skip, self.loader_state = 0, None
        if self.to_skip and self.saved_size not in {None, share.global_batch_size}:
            raise ModelMismatchError(
                f"the checkpoint counts {self.to_skip} batches of {self.saved_size} sequences, and "
                f"the plan's have {share.global_batch_size}",
                field="session.shard",
                value="a loader that does not tell its place",
                remedy="bring the loader to its place and pass is_positioned=True, or plan with "
                f"global_batch_size {self.saved_size}",
            )


Read = Callable[[GivenBatch], Batch]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataShare:
    """What a global batch is, how it is read, which rows of it are a rank's, and where they go."""

    planned: PlannedBatch
    read: Read
    place: DataPlace
    device: torch.device

    @property
    def global_batch_size(self) -> int:
        """Return how many sequences all ranks together take of a batch."""
        loaders = self.place.degree if self.place.reads_alone else 1
        return self.planned.sequence_count * loaders

    def batches(self, loader: Iterable[GivenBatch]) -> Iterator[GivenBatch]:
        """Yield what a loader has; of loaders of ranks' own, while all of them have something.

        Raises:
            ModelMismatchError: on every rank, if some have ended before others.
        """
        if not self.place.reads_alone:
            yield from loader
            return
        own = iter(loader)
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
    position.meet(loader, share, is_positioned=is_positioned)
    short, resumptions = 0, position.resumptions
    for given in share.batches(loader):
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
            position.to_skip -= 1
            continue
        position.taken += 1
        if position.first_mark is None:
            position.first_mark = _mark(*given_tensors(given))
        yield share.rows_of(given, row_count)


def check_global(given: GivenBatch) -> None:
    """Return if every rank has the batch; a collective call.

    Raises:
        ModelMismatchError: on every rank, if one has another.
    """
    marks = everyone(_mark(*given_tensors(given)))
    for rank, mark in enumerate(marks):
        if mark != marks[0]:
            raise _not_global(rank, 0)


def check_same_rows(given: GivenBatch, data_index: int) -> None:
    """Return if ranks with the same `data_index` have the same rows; a collective call.

    Raises:
        ModelMismatchError: on every rank, if one has others.
    """
    marks: list[tuple[int, int]] = everyone((data_index, _mark(*given_tensors(given))))
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


def _not_global(rank: int, first: int) -> ModelMismatchError:
    return ModelMismatchError(
        "must yield the same global batches on every rank",
        field="loader",
        value=f"another first batch on rank {rank} than on rank {first}",
        remedy="seed what shuffles, as by DataLoader(..., generator=torch.Generator()"
        ".manual_seed(0)), and use no DistributedSampler: session.shard() shares out, unless "
        "it is told per_rank=True, and trainer.evaluate() always does",
    )


def _gone_back() -> ModelMismatchError:
    return ModelMismatchError(
        "trainer.load() has gone back to another place in the data while batches were taken",
        field="session.shard",
        value="the batches of before",
        remedy="begin again: for batch in session.shard(loader), which passes over those taken",
    )


def _warn_of_same_rows(mark: int | None) -> None:
    """Say that loaders of ranks' own all read the same; what is on a GPU has no mark, 0."""
    if mark and distributed.get_rank() == 0:
        warnings.warn(
            "all data ranks read the same first rows: pick a rank's by session.sampler(dataset)",
            stacklevel=2,
        )


def _mark(*tensors: torch.Tensor) -> int:
    """Return a sum of the tensors' numbers; what lies on a GPU already would be waited for."""
    mark = 0
    for tensor in tensors:
        if tensor.device.type == "cpu":
            flat = tensor.detach().reshape(-1)
            spread = flat[:: max(1, len(flat) // _MARKED_NUMBERS)].contiguous()
            mark = crc32(spread.view(torch.uint8).numpy().tobytes(), mark)
    return mark


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
