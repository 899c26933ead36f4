"""Groups of ranks, started once and shared by all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch")

from tests.distributed.forking_launches import ForkingLaunches
from tests.distributed.group import RankGroup


@pytest.fixture(scope="session")
def four_ranks() -> Iterator[RankGroup]:
    """Four gloo ranks."""
    group = RankGroup(4)
    yield group
    group.close()


@pytest.fixture(scope="session")
def eight_ranks() -> Iterator[RankGroup]:
    """Eight gloo ranks."""
    group = RankGroup(8)
    yield group
    group.close()


@pytest.fixture(scope="session")
def two_ranks() -> Iterator[RankGroup]:
    """Two gloo ranks."""
    group = RankGroup(2)
    yield group
    group.close()


@pytest.fixture(scope="session")
def launches() -> Iterator[ForkingLaunches]:
    """A process that forks launchers."""
    forking = ForkingLaunches()
    yield forking
    forking.close()
