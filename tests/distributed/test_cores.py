"""Ranks of one host share out the cores that they may all use, and keep those that are theirs."""

from __future__ import annotations

import pytest

from executor.cores import usable_core_count
from tests.distributed.group import RankGroup

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(usable_core_count() < 2, reason="one core alone can be used here"),
]


@pytest.mark.parametrize(
    ("bound", "kept"),
    [
        ([[0, 1], [0, 1]], [[0], [1]]),
        ([[0, 1], [1]], [[0, 1], [1]]),
        ([[1], [0]], [[1], [0]]),
        ([[1], [1]], [[1], [1]]),
    ],
    ids=["free", "one-bound", "each-bound", "one-core"],
)
def test_ranks_share_the_cores_that_no_launcher_has_shared_out(
    two_ranks: RankGroup, bound: list[list[int]], kept: list[list[int]]
) -> None:
    """All threads of a rank keep to its cores, those that were there before as well."""
    answer = two_ranks.run("kept_cores", bound=bound)
    assert answer["kept"] == [cores for cores in kept for _ in ("main thread", "earlier thread")]
