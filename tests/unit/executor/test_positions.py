"""Which tokens of a sequence a context-parallel rank holds."""

from __future__ import annotations

import torch

from executor.models.positions import SequencePart


def test_a_balanced_part_is_one_early_and_one_late_piece() -> None:
    whole = torch.arange(16).unsqueeze(0)
    parts = [SequencePart(index=index, count=2, balanced=True).of(whole) for index in range(2)]
    assert parts[0].tolist() == [[0, 1, 2, 3, 12, 13, 14, 15]]
    assert parts[1].tolist() == [[4, 5, 6, 7, 8, 9, 10, 11]]


def test_a_part_that_is_not_balanced_is_one_piece() -> None:
    whole = torch.arange(12).unsqueeze(0)
    assert SequencePart(index=1, count=3).of(whole).tolist() == [[4, 5, 6, 7]]


def test_positions_are_those_of_the_tokens_that_a_part_holds() -> None:
    whole = torch.arange(24).unsqueeze(0)
    for balanced in (True, False):
        for index in range(3):
            part = SequencePart(index=index, count=3, balanced=balanced)
            assert part.positions(8).tolist() == part.of(whole)[0].tolist()


def test_the_whole_sequence_is_handed_on_as_it_is() -> None:
    whole = torch.arange(5).unsqueeze(0)
    assert SequencePart().of(whole) is whole
    assert SequencePart().positions(3).tolist() == [0, 1, 2]
