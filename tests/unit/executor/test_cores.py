"""Cores: every rank keeps to a share of its own."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="no package torch")

from executor.cores import own_cores


@pytest.mark.parametrize(
    ("allowed", "rank_count", "shares"),
    [
        ([0, 1, 2, 3], 2, [{0, 1}, {2, 3}]),
        ([4, 5, 6, 7, 8], 2, [{4, 5}, {6, 7}]),
        ([0, 1], 4, [{0}, {1}, {0}, {1}]),
        ([3], 2, [{3}, {3}]),
    ],
)
def test_cores_are_shared_out(allowed: list[int], rank_count: int, shares: list[set[int]]) -> None:
    found = [own_cores(allowed, rank, rank_count) for rank in range(rank_count)]
    assert found == shares
