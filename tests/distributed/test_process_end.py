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


def test_what_a_script_leaves_to_its_end_is_written_and_an_end_that_hangs_is_told(
    tmp_path: Path,
) -> None:
    """A file that nobody closes, a handler at exit and a thread's last line; rank 1 hangs."""
    (tmp_path / "plan.json").write_text(cpu_plan(data_parallel_degree=2).to_json())
    (tmp_path / "script.py").write_text(ENDS)
    (tmp_path / "book.py").write_text("import os\nfile = open('log-' + os.environ['RANK'], 'w')\n")
    variables = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "MESHWRIGHT_END_SECONDS": "8"}
    report = ("--report", "report.json")
    done = subprocess.run(
        [sys.executable, "-m", "executor.launcher", "plan.json", *report, "--", "script.py"],
        cwd=tmp_path,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "log-0").read_text() == "step,loss\n"
    assert (tmp_path / "exit-0").read_text() == "handler"
    assert (tmp_path / "thread-0").read_text() == "thread"
    assert (tmp_path / "report.json").is_file()
    (warning,) = [line for line in done.stderr.splitlines() if line.startswith("warning:")]
    assert warning.startswith("warning: rank 1 trained to its end, and its process did not end")
    assert "script.py, line 21" in warning


ENDS = """
import atexit, threading, book
from pathlib import Path
import torch
import meshwright
from executor.losses import next_token_loss
from executor.models.decoder import Decoder

session = meshwright.start()
graph = session.plan.model.resolved
trainer = session.parallelize(lambda: Decoder(graph), next_token_loss, torch.optim.AdamW)
tokens = torch.zeros((8, 16), dtype=torch.long)
for inputs, targets in session.shard([(tokens, tokens)]):
    trainer.step(inputs, targets)

book.file.write("step,loss\\n")
atexit.register(lambda: Path(f"exit-{session.rank}").write_text("handler"))
done = threading.Event()

def last():
    done.wait()
    Path(f"thread-{session.rank}").write_text("thread")

threading.Thread(target=last).start()
if session.rank == 0:
    threading.Timer(0.1, done.set).start()
"""
