"""Ranks end as Python processes do: what a script leaves to the end is written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed.group import ROOT
from tests.distributed.plans import cpu_plan

pytestmark = pytest.mark.distributed
LIMIT_SECONDS = 800


def test_what_a_script_leaves_to_its_end_is_written(tmp_path: Path) -> None:
    """A file that nobody closes, a handler at exit and a thread's last line.

    A loss that writes to what is closed by then fails the step that meters memory, and no run.
    """
    (tmp_path / "plan.json").write_text(cpu_plan().to_json())
    (tmp_path / "script.py").write_text(ENDS)
    (tmp_path / "book.py").write_text("file = open('log', 'w')\n")
    done = subprocess.run(
        [sys.executable, "-m", "executor.launcher", "plan.json", "--", "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "log").read_text() == "step,loss\n"
    assert (tmp_path / "exit").read_text() == "handler"
    assert (tmp_path / "thread").read_text() == "thread"
    assert "warning" not in done.stderr
    unmetered = (
        "memory was not metered: one step more, after the script's end, gave ValueError: I/O"
    )
    assert unmetered in done.stdout


ENDS = """
import atexit, threading, book
from pathlib import Path
import torch
import meshwright
from executor.losses import next_token_loss
from executor.models.decoder import Decoder

session = meshwright.start()
graph = session.plan.model.resolved
losses = open("losses", "w")

def logged_loss(logits, targets):
    losses.write("a loss\\n")
    return next_token_loss(logits, targets)

trainer = session.parallelize(lambda: Decoder(graph), logged_loss, torch.optim.AdamW)
tokens = torch.zeros((8, 16), dtype=torch.long)
for inputs, targets in session.shard([(tokens, tokens)]):
    trainer.step(inputs, targets)

losses.close()
book.file.write("step,loss\\n")
atexit.register(lambda: Path("exit").write_text("handler"))
done = threading.Event()

def last():
    done.wait()
    Path("thread").write_text("thread")

threading.Thread(target=last).start()
threading.Timer(0.1, done.set).start()
"""
