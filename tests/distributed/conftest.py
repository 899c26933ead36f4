"""Groups of ranks, started once and shared by all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch")

from tests.distributed.forking_launches import ForkingLaunches
from tests.distributed.group import RankForks, RankGroup


@pytest.fixture(scope="session")
def rank_forks() -> Iterator[RankForks]:
    """A process that forks ranks."""
    forks = RankForks()
    yield forks
    forks.close()


@pytest.fixture(scope="session")
def two_ranks(rank_forks: RankForks) -> RankGroup:
    """Two gloo ranks."""
    return RankGroup(rank_forks, 2)


@pytest.fixture(scope="session")
def four_ranks(rank_forks: RankForks) -> RankGroup:
    """Four gloo ranks."""
    return RankGroup(rank_forks, 4)


@pytest.fixture(scope="session")
def eight_ranks(rank_forks: RankForks) -> RankGroup:
    """Eight gloo ranks."""
    return RankGroup(rank_forks, 8)


@pytest.fixture(scope="session")
def launches() -> Iterator[ForkingLaunches]:
    """A process that forks launchers."""
    forking = ForkingLaunches()
    yield forking
    forking.close()
