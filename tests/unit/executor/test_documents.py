"""Documents of one row, told by lengths as transformers' collator does, become positions."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="no package torch")

import torch
from transformers import DataCollatorWithFlattening

from executor.errors import ModelMismatchError
from executor.models.documents import with_positions

DOCUMENTS = [{"input_ids": [7, 8, 9]}, {"input_ids": [5]}, {"input_ids": [6, 7]}]


def collated(**changes: Any) -> dict[str, Any]:
    """Three documents as the collator hands them over, with `changes`."""
    collator = DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True)
    return {**collator(DOCUMENTS), **changes}


def test_lengths_become_positions() -> None:
    given = collated()
    assert given["cu_seq_lens_q"].tolist() == [0, 3, 4, 6]
    taken = with_positions({**given, "position_ids": None})
    assert set(taken) == {"input_ids", "labels", "position_ids"}
    assert taken["position_ids"].tolist() == [[0, 1, 2, 0, 0, 1]]
    assert taken["input_ids"] is given["input_ids"]


def test_positions_of_the_collator_are_kept() -> None:
    """Models like RoBERTa count from another number than 0."""
    collator = DataCollatorWithFlattening(return_flash_attn_kwargs=True, position_ids_start=2)
    assert with_positions(collator(DOCUMENTS))["position_ids"].tolist() == [[2, 3, 4, 2, 2, 3]]


def test_other_batches_stay_as_they_are() -> None:
    given = {"input_ids": torch.ones(2, 3), "labels": torch.ones(2, 3)}
    assert with_positions(given) is given
    pair = (torch.ones(2, 3), torch.ones(2, 3))
    assert with_positions(pair) is pair


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"cu_seq_lens_k": torch.tensor([0, 2, 6])}, "cu_seq_lens_q and cu_seq_lens_k"),
        ({"cu_seq_lens_q": torch.tensor([0, 7]), "cu_seq_lens_k": None}, "6 tokens"),
        ({"cu_seq_lens_q": torch.tensor([0, 3, 3, 6]), "cu_seq_lens_k": None}, "0, 3, 3, 6"),
        ({"input_ids": torch.ones(2, 3, dtype=torch.long)}, "one row"),
        ({"max_length_q": 2}, "max_length_q.*a document of 3 tokens"),
        ({"seq_idx": torch.zeros(1, 6, dtype=torch.int32)}, "seq_idx"),
        ({"position_ids": torch.arange(6).unsqueeze(0)}, "position_ids.*restarts"),
        ({"attention_mask": torch.tensor([[1, 1, 1, 1, 1, 0]])}, "attention_mask"),
    ],
)
def test_contradictions_are_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelMismatchError, match=named):
        with_positions(collated(**changes))
