"""A few rounds of faults; `python -m tests.chaos --rounds 200` plays many."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.rounds import play

pytestmark = pytest.mark.slow
SEED = 7


@pytest.mark.timeout(600)
def test_rounds_of_faults_lose_no_run_no_row_and_no_line(tmp_path: Path) -> None:
    """Kinds of faults are drawn; every round ends in a true state."""
    kinds = ["rank killed", "agent killed", "server killed", "network cut", "cancelled"]
    said: list[str] = []
    tally = play(tmp_path, rounds=4, seed=SEED, kinds=kinds, say=said.append)
    assert tally.rounds == 4
    assert tally.losses == [], "\n".join(said)
    assert sum(tally.ends[state] for state in ("succeeded", "cancelled")) == 4
