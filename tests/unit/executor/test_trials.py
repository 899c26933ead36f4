"""Rounds of trials end when they agree; the stopwatch times short work several times at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch")

import torch
from torch import distributed

from executor.stopwatch import LEAST_TIMED_SECONDS, LEAST_TURNS, MOST_AT_ONCE, Stopwatch
from planner.schema.trial import rounds_agree


@pytest.fixture
def lone_rank(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone."""
    store = f"file://{tmp_path / 'store'}"
    distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("times", "agree"),
    [
        ([[1.0, 1.0], [2.0, 2.0]], False),  # two rounds are too few
        ([[9.0, 1.0, 1.0, 1.02], [9.0, 2.0, 2.0, 2.04]], True),  # rounds of 3 and 3.06 at last
        ([[1.0, 1.0, 1.2], [2.0, 2.0, 2.0]], False),  # 3 and 3.2
    ],
)
def test_rounds_agree_when_the_last_three_took_as_long(
    times: list[list[float]], agree: bool
) -> None:
    assert rounds_agree(times) is agree


@pytest.mark.usefixtures("lone_rank")
def test_short_work_is_timed_many_times_at_once() -> None:
    """Two calls first, then at least three repetitions of the most that are timed at once."""
    calls: list[None] = []
    watch = Stopwatch(device=torch.device("cpu"), budget_seconds=0.0)
    seconds = watch.seconds(lambda: calls.append(None))
    assert len(calls) == 2 + 3 * MOST_AT_ONCE
    assert 0.0 < seconds < 0.02


@pytest.mark.usefixtures("lone_rank")
def test_what_takes_several_budgets_is_timed_once_after_a_first_time() -> None:
    calls: list[None] = []

    def slow() -> None:
        calls.append(None)
        end = time.perf_counter() + 2 * LEAST_TIMED_SECONDS
        while time.perf_counter() < end:
            pass

    seconds = Stopwatch(device=torch.device("cpu"), budget_seconds=0.0).seconds(slow)
    assert len(calls) == 2
    assert seconds >= 2 * LEAST_TIMED_SECONDS


@pytest.mark.usefixtures("lone_rank")
def test_works_are_timed_in_turn() -> None:
    calls: list[str] = []
    watch = Stopwatch(device=torch.device("cpu"), budget_seconds=0.0)
    times = watch.seconds_in_turn([lambda: calls.append("a"), lambda: calls.append("b")])
    assert calls == ["a", "b"] * (LEAST_TURNS + 1)
    assert len(times) == 2
