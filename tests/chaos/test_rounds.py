"""A few rounds of faults; `python -m tests.chaos --rounds 200` plays many."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.chaos.clocks import Clock
from tests.chaos.rounds import play

pytestmark = pytest.mark.slow
SEED = 11


@pytest.mark.timeout(1800)
def test_rounds_of_faults_lose_no_run_no_row_and_no_line(tmp_path: Path) -> None:
    """Kinds of faults are drawn; every round ends in a true state."""
    kinds = [
        *("rank killed", "agent killed", "server killed", "cancelled", "database away"),
        "network cut, server's clock set",
    ]
    said: list[str] = []
    tally = play(tmp_path, rounds=2, seed=SEED, kinds=kinds, say=said.append)
    assert tally.rounds == 2
    assert tally.losses == [], "\n".join(said)
    assert sum(tally.ends[state] for state in ("succeeded", "cancelled")) == 2


def test_a_clock_that_is_set_is_read_by_processes_and_moves_nothing_else(tmp_path: Path) -> None:
    clock = Clock(tmp_path, "clock")
    if not clock.can_be_set:
        pytest.skip("no C compiler is installed")
    clock.set_by(-3600)
    clock.set_by(90)
    program = "import time; print(time.time(), time.monotonic())"

    answer = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env=clock.environment, capture_output=True, text=True, check=True,
    )  # fmt: skip

    wall, monotonic = map(float, answer.stdout.split())
    assert -4000 < wall - time.time() < -3500
    assert 0 <= time.monotonic() - monotonic < 500
