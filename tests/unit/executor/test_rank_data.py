"""Ranks read the same global batches and keep their own rows."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from executor.data import corpus_batches, corpus_tokens, shard
from executor.errors import ModelMismatchError

CPU = torch.device("cpu")


def rows_of(data_index: int) -> list[int]:
    """The first tokens that one of two data ranks gets of a batch of four."""
    tokens = torch.arange(4).unsqueeze(1)
    parts = shard(
        [(tokens, tokens)], global_batch_size=4, data_degree=2, data_index=data_index, device=CPU
    )
    return [int(row) for inputs, _ in parts for row in inputs[:, 0]]


def test_data_ranks_share_out_each_batch() -> None:
    assert rows_of(0) == [0, 1]
    assert rows_of(1) == [2, 3]


def test_a_loader_of_local_batches_is_refused() -> None:
    batch = (torch.zeros(2, 3), torch.zeros(2, 3))
    parts = shard([batch], global_batch_size=4, data_degree=2, data_index=0, device=CPU)
    with pytest.raises(ModelMismatchError, match="yield whole global batches"):
        next(parts)


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
