"""Data position: how far a run has come in its data, and how it comes there again.

A loader that can tell its own state has it back. Batches of any other are passed over, as they were
read: by as many passes over the data, the last of which begins with the script's generators where
they were, since loaders shuffle by them. The last batch of all has to be the one that was taken.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable
from zlib import crc32

import torch
from torch import distributed

from executor.agreement import everyone
from executor.batch import GivenBatch, given_tensors
from executor.errors import ModelMismatchError
from executor.randomness import generator_states, restore_generators

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

    `first_mark` tells the first of them that this process took from others, and `open_mark` one
    that no step had yet. `last_mark` tells the last of all others. Passes over the data began after
    `starts` batches, the last of them with generators in the states `beginning`. `saved_size` is
    how many sequences those had that were taken before, and `saved_marks` tell the last of these by
    place, where a checkpoint says it.
    """

    taken: int = 0
    to_skip: int = 0
    loader: StatefulLoader | None = field(default=None, repr=False)
    loader_state: dict[str, Any] | None = field(default=None, repr=False)
    first_mark: int | None = None
    open_mark: int | None = None
    last_mark: int | None = None
    place: DataPlace = field(default_factory=DataPlace)
    resumptions: int = 0
    saved_size: int | None = None
    saved_marks: list[int | None] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    beginning: dict[str, Any] | None = field(default=None, repr=False)
    _pass: int = -1
    _meanwhile: dict[str, Any] | None = field(default=None, repr=False)

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
        if state is not None and self.open_mark is not None and distributed.get_rank() == 0:
            warnings.warn(
                "the loader is saved behind a batch that no step had, and that a run which goes on "
                "from there passes over: save between steps",
                stacklevel=2,
            )
        if not self.place.reads_alone:
            return state
        by_place: dict[int, Any] = dict(reversed(everyone((self.place.index, state))))
        states = [by_place[index] for index in range(self.place.degree)]
        return None if None in states else {_OWN_STATES: states}

    def passed(self) -> dict[str, Any]:
        """Return what it takes to pass over the same batches again; a collective call."""
        by_place: dict[int, int | None] = dict(everyone((self.place.index, self.last_mark)))
        marks = [by_place[index] for index in sorted(by_place)]
        if not self.place.reads_alone:
            marks = marks[:1]
        return {
            "marks": self.saved_marks if self.last_mark is None else marks,
            "starts": list(self.starts),
            "beginnings": everyone(self.beginning),
        }

    def begin_pass(self, device: torch.device) -> None:
        """Note where a pass over the data begins; one that is repeated begins as it did."""
        self.close()
        if self.to_skip and self._meanwhile is None:
            self._meanwhile = generator_states(device)
        if self._pass + 1 < len(self.starts):
            self._pass += 1
            if self.beginning is not None and self._pass == len(self.starts) - 1:
                restore_generators(self.beginning, device)
        elif not self.to_skip:
            self._pass = len(self.starts)
            self.starts.append(self.taken)
            self.beginning = generator_states(device)

    @property
    def is_pass_over(self) -> bool:
        """Return whether what comes next was taken in another pass."""
        following = self.starts[self._pass + 1 : self._pass + 2] if self._pass >= 0 else ()
        return any(self.taken - self.to_skip >= start for start in following)

    def take(self, given: GivenBatch) -> None:
        """Note a batch that a script is about to have."""
        self.close()
        self.taken += 1
        self.open_mark = mark_of(*given_tensors(given))
        if self.first_mark is None:
            self.first_mark = self.open_mark

    def close(self) -> None:
        """Note that the last batch is done with: a step had it, or the next one is asked for."""
        if self.open_mark is not None:
            self.last_mark, self.open_mark = self.open_mark, None

    @property
    def closed_count(self) -> int:
        """Return how many batches are not to be had again: the last where no step had it is."""
        return self.taken - (self.open_mark is not None)

    def pass_over(self, given: GivenBatch, device: torch.device) -> None:
        """Pass over a batch that was taken before.

        Raises:
            ModelMismatchError: if it is the last of them, and another than was taken.
        """
        self.to_skip -= 1
        if self.to_skip:
            return
        if self._meanwhile is not None:
            restore_generators(self._meanwhile, device)
        expected = self.place.degree if self.place.reads_alone else 1
        saved = self.saved_marks or [None] * expected
        if len(saved) != expected:
            self._warn_of_other_loaders(len(saved), expected)
            return
        known, mark = saved[self.place.index % expected], mark_of(*given_tensors(given))
        if known not in {None, mark}:
            raise ModelMismatchError(
                "has other batches than the run had that is gone on with, of which some would be "
                "trained again and some left out",
                field="loader",
                value=f"another batch number {self.taken}",
                remedy="seed what shuffles, as by DataLoader(..., generator=torch.Generator()"
                ".manual_seed(0)), use a loader that tells its place, as torchdata's, or bring it "
                "there and pass is_positioned=True",
            )

    def _warn_of_other_loaders(self, before: int, now: int) -> None:
        if distributed.get_rank() == 0:
            warnings.warn(
                f"{before} loaders shared the data out before, and {now} do now: whether the same "
                "rows are passed over is not known, unless session.sampler(dataset) picks them",
                stacklevel=2,
            )

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
            return not_global(rank, first)
        return ModelMismatchError(
            "must yield the same rows on ranks with the same session.data_index",
            field="loader",
            value=f"another first batch on rank {rank} than on rank {first}",
            remedy="pick rows by session.sampler(dataset), or by data_index and data_degree, "
            "not by the rank",
        )

    def resume(
        self,
        *,
        taken: int,
        loader_state: dict[str, Any] | None,
        batch_size: int | None = None,
        passed: Mapping[str, Any] | None = None,
    ) -> None:
        """Go on where `taken` batches, each of `batch_size` sequences, were taken.

        `passed` is what was saved of them.
        """
        self.taken, self.to_skip, self.loader_state = taken, taken, loader_state
        self.saved_size = batch_size
        self.saved_marks, self.starts, beginnings = [], [], [None]
        if passed is not None:
            self.saved_marks, self.starts = passed["marks"], list(passed["starts"])
            beginnings = passed["beginnings"]
        rank = distributed.get_rank() if len(beginnings) > 1 else 0
        self.beginning = beginnings[rank if rank < len(beginnings) else 0]
        self.open_mark = self.last_mark = self._meanwhile = None
        self._pass = -1
        self.resumptions += 1

    def meet(
        self, loader: object, place: DataPlace, *, batch_size: int, is_positioned: bool
    ) -> None:
        """Take over a loader, and bring it to its place where it can go there itself.

        All ranks together take `batch_size` sequences of a batch.

        Raises:
            ModelMismatchError: if nothing says where that is.
        """
        self.place = place
        self.loader = loader if isinstance(loader, StatefulLoader) else None
        if is_positioned:
            self.to_skip, self.loader_state = 0, None
        if self.loader is not None and self.loader_state is not None:
            self.loader.load_state_dict(self._own_state(self.loader_state))
            self.to_skip, self.loader_state = 0, None
        if self.to_skip and self.saved_size not in {None, batch_size}:
            raise ModelMismatchError(
                f"the checkpoint counts {self.to_skip} batches of {self.saved_size} sequences, and "
                f"the plan's have {batch_size}",
                field="session.shard",
                value="a loader that does not tell its place",
                remedy="bring the loader to its place and pass is_positioned=True, or plan with "
                f"global_batch_size {self.saved_size}",
            )


def not_global(rank: int, first: int) -> ModelMismatchError:
    """Return the error that `rank` has another first batch than rank `first`."""
    return ModelMismatchError(
        "must yield the same global batches on every rank",
        field="loader",
        value=f"another first batch on rank {rank} than on rank {first}",
        remedy="seed what shuffles, as by DataLoader(..., generator=torch.Generator()"
        ".manual_seed(0)), and use no DistributedSampler: session.shard() shares out, unless "
        "it is told per_rank=True, and trainer.evaluate() always does",
    )


def _warn_of_same_rows(mark: int | None) -> None:
    """Say that loaders of ranks' own all read the same; what is on a GPU has no mark, 0."""
    if mark and distributed.get_rank() == 0:
        warnings.warn(
            "all data ranks read the same first rows: pick a rank's by session.sampler(dataset)",
            stacklevel=2,
        )


def mark_of(*tensors: torch.Tensor) -> int:
    """Return a sum of the tensors' numbers; what lies on a GPU already would be waited for."""
    mark = 0
    for tensor in tensors:
        if tensor.device.type == "cpu":
            flat = tensor.detach().reshape(-1)
            spread = flat[:: max(1, len(flat) // _MARKED_NUMBERS)].contiguous()
            mark = crc32(spread.view(torch.uint8).numpy().tobytes(), mark)
    return mark
