"""Ranks read the same global batches and keep their own rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import pytest
import torch

from executor.data import DataShare, corpus_batches, corpus_tokens, shard
from executor.data_position import DataPlace, DataPosition
from executor.errors import ModelMismatchError
from executor.models.forward_inputs import ForwardInputs, as_given
from executor.planned import PlannedBatch

CPU = torch.device("cpu")


def share(data_index: int = 0) -> DataShare:
    """One of two data ranks of batches of four."""
    planned = PlannedBatch(sequence_count=4, sequence_length=None, vocabulary_size=None)
    read = partial(ForwardInputs().read, target_name="labels", field="loader")
    return DataShare(
        planned=planned,
        translate=as_given,
        read=read,
        place=DataPlace(index=data_index, degree=2),
        device=CPU,
    )


def numbered_batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of four, all of whose tokens are the batch's number."""
    whole = [torch.full((4, 1), index) for index in range(count)]
    return [(batch, batch) for batch in whole]


def numbers(loader: Any, position: DataPosition, **options: bool) -> list[int]:
    """The numbers of the batches that a rank gets."""
    return [int(inputs[0, 0]) for inputs, _ in shard(loader, share(), position, **options)]


class PlacedLoader:
    """Numbered batches from a place that it can tell and go back to."""

    def __init__(self, count: int) -> None:
        self._batches = numbered_batches(count)
        self._next = 0

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while self._next < len(self._batches):
            self._next += 1
            yield self._batches[self._next - 1]

    def state_dict(self) -> dict[str, Any]:
        """Return the number of the next batch."""
        return {"next": self._next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on there."""
        self._next = state["next"]


@pytest.mark.parametrize(("data_index", "rows"), [(0, [0, 1]), (1, [2, 3])])
def test_data_ranks_share_out_each_batch(data_index: int, rows: list[int]) -> None:
    tokens = torch.arange(4).unsqueeze(1)
    parts = shard([(tokens, tokens)], share(data_index), DataPosition())
    assert [int(row) for inputs, _ in parts for row in inputs[:, 0]] == rows


def test_a_loader_of_local_batches_is_refused() -> None:
    batch = (torch.zeros(2, 3), torch.zeros(2, 3))
    with pytest.raises(ModelMismatchError, match="yield whole global batches"):
        next(shard([batch], share(), DataPosition()))


@pytest.mark.parametrize(("data_index", "rows"), [(0, [0, 1]), (1, [2])])
def test_the_last_batch_may_have_fewer_rows(data_index: int, rows: list[int]) -> None:
    tokens = torch.arange(4).unsqueeze(1)
    loader = [{"input_ids": item, "labels": item} for item in (tokens, tokens[:3])]
    *_, last = shard(loader, share(data_index), DataPosition())
    assert isinstance(last, dict)
    assert last["input_ids"][:, 0].tolist() == last["labels"][:, 0].tolist() == rows


def test_a_short_batch_before_others_is_refused() -> None:
    tokens = torch.arange(4).unsqueeze(1)
    parts = shard([(t, t) for t in (tokens, tokens[:3], tokens)], share(), DataPosition())
    with pytest.raises(ModelMismatchError, match=r"only a loader's last .*3 sequences before"):
        list(parts)


def _first_mark(inputs: torch.Tensor, targets: torch.Tensor) -> int | None:
    position = DataPosition()
    next(shard([(inputs, targets)], share(), position))
    return position.first_mark


def test_a_batch_that_no_step_had_is_to_be_had_again() -> None:
    """A script that leaves its loop before the step has taken one too many."""
    position = DataPosition()
    batches = shard(numbered_batches(5), share(), position)
    next(batches)
    position.close()
    next(batches)
    assert (position.taken, position.closed_count) == (2, 1)
    next(batches)
    assert position.closed_count == 2


def test_batches_are_told_apart_by_inputs_and_by_targets() -> None:
    tokens = torch.arange(4).repeat_interleave(4).reshape(4, 4)
    other = tokens.flip(0)
    marks = [_first_mark(*pair) for pair in ((tokens, tokens), (tokens, other), (other, tokens))]
    assert len(set(marks)) == 3
    assert _first_mark(tokens.clone(), tokens.clone()) == marks[0]


def test_a_resumed_run_passes_over_the_batches_that_were_taken() -> None:
    position = DataPosition()
    position.resume(taken=3, loader_state=None)
    assert numbers(numbered_batches(5), position) == [3, 4]
    assert position.taken == 5


def test_batches_of_another_size_are_not_counted_off() -> None:
    position = DataPosition()
    position.resume(taken=3, loader_state=None, batch_size=8)
    with pytest.raises(ModelMismatchError, match="3 batches of 8 sequences, and the plan's have 4"):
        numbers(numbered_batches(5), position)
    assert numbers(numbered_batches(5)[4:], position, is_positioned=True) == [4]


def test_batches_end_where_a_checkpoint_goes_back() -> None:
    position = DataPosition()
    batches = shard(numbered_batches(5), share(), position)
    next(batches)
    position.resume(taken=0, loader_state=None)
    with pytest.raises(ModelMismatchError, match=r"trainer\.load\(\) has gone back"):
        next(batches)


def test_a_resumed_run_passes_over_whole_epochs() -> None:
    """Three batches an epoch, and four were taken: the first epoch and one of the second."""
    position = DataPosition()
    position.resume(taken=4, loader_state=None)
    assert [numbers(numbered_batches(3), position) for _ in range(3)] == [[], [1, 2], [0, 1, 2]]


def test_a_loader_that_is_at_its_place_already_is_taken_as_it_is() -> None:
    position = DataPosition()
    position.resume(taken=3, loader_state=None)
    assert numbers(numbered_batches(5)[3:], position, is_positioned=True) == [3, 4]


def test_a_loader_that_can_go_to_its_place_is_sent_there() -> None:
    first = DataPosition()
    loader = PlacedLoader(5)
    batches = shard(loader, share(), first)
    next(batches)
    next(batches)
    again = DataPosition()
    again.resume(taken=first.taken, loader_state=loader.state_dict())
    assert numbers(PlacedLoader(5), again) == [2, 3, 4]
    assert again.taken == 5


def test_targets_are_the_inputs_one_token_later() -> None:
    inputs, targets = next(corpus_batches(global_batch_size=2, sequence_length=8))
    assert inputs.shape == targets.shape == (2, 8)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])


def test_batches_repeat_for_a_seed_and_differ_between_seeds() -> None:
    first, again = (
        list(islice(corpus_batches(global_batch_size=2, sequence_length=8, seed=1), 3))
        for _ in range(2)
    )
    other = next(corpus_batches(global_batch_size=2, sequence_length=8, seed=2))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0][0], other[0])


def test_the_corpus_is_ascii_and_large_enough_to_train_on() -> None:
    tokens = corpus_tokens()
    assert len(tokens) > 100_000
    assert int(tokens.max()) < 128


def test_a_sequence_longer_than_the_corpus_is_refused() -> None:
    with pytest.raises(ModelMismatchError, match=r"job\.sequence_length.*plan a shorter"):
        next(corpus_batches(global_batch_size=1, sequence_length=10**7))
