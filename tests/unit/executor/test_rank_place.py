"""Of ranks at the same step the one that waits for nobody is the one that did not come."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="no package torch")

import executor.session
from executor.rank_place import read_places, who_did_not_come, write_place

OURS = executor.session.__file__


def test_a_rank_that_waited_in_our_own_code_is_not_the_late_one(tmp_path: Path) -> None:
    """It waits in C below a line of the executor; the other sleeps in its loss function."""
    step = traceback.FrameSummary("/home/me/train.py", 14, "<module>")
    inside = traceback.FrameSummary(OURS, 7, "step")
    loss = traceback.FrameSummary("/home/me/train.py", 5, "loss")
    write_place(tmp_path, [step, inside], rank=0, begun_steps=3, has_waited=True)
    write_place(tmp_path, [step, inside, loss], rank=1, begun_steps=3)
    (late,) = who_did_not_come(read_places(tmp_path))
    assert (late.rank, late.line) == (1, "train.py, line 5")
