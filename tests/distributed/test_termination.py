"""A run that is asked to end saves after its step, and one that does not is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.schema.run import RunReport
from tests.distributed.forking_launches import ForkingLaunches
from tests.distributed.plans import cpu_plan

pytestmark = pytest.mark.distributed


def _words(tmp_path: Path, script: str) -> tuple[str, ...]:
    plan = cpu_plan(data_parallel_degree=2)
    (tmp_path / "plan.json").write_text(plan.to_json())
    (tmp_path / "script.py").write_text(f"{BEGINS}\n{script}")
    report = ("--report", str(tmp_path / "report.json"))
    return (str(tmp_path / "plan.json"), *report, "--", str(tmp_path / "script.py"))


def test_a_run_that_is_asked_to_end_stops_after_one_step_on_all_ranks_and_saves(
    launches: ForkingLaunches, tmp_path: Path
) -> None:
    result = launches.launch(tmp_path, *_words(tmp_path, STOPS), str(tmp_path / "saved"))
    assert result.returncode == 0, result.stderr
    report = RunReport.read(tmp_path / "report.json")
    assert report.status == "stopped"
    steps = len(report.losses)
    assert 2 <= steps < 100_000
    assert json.loads((tmp_path / "saved" / "checkpoint.json").read_text())["step"] == steps
    said = f"asked to end: stopped after step {steps}, the last checkpoint is of step {steps}"
    assert said in result.stdout
    assert [len(rank.step_seconds) for rank in report.ranks] == [steps, steps]


def test_a_run_that_does_not_end_within_its_grace_is_killed(
    launches: ForkingLaunches, tmp_path: Path
) -> None:
    result = launches.launch(tmp_path, *_words(tmp_path, HANGS))
    assert result.returncode == 1
    assert result.stderr == "error: stopped by SIGTERM\n"


BEGINS = """
import os, signal, sys
os.environ["MESHWRIGHT_GRACE_SECONDS"] = "1" if len(sys.argv) == 1 else "60"
import torch
import meshwright
from executor.losses import next_token_loss
from executor.models.decoder import Decoder

session = meshwright.start()
graph = session.plan.model.resolved
trainer = session.parallelize(lambda: Decoder(graph), next_token_loss, torch.optim.AdamW)
tokens = torch.zeros((8, 16), dtype=torch.long)
launcher = int(os.environ["MESHWRIGHT_LAUNCHER_PROCESS"])
"""

STOPS = """
for inputs, targets in session.shard([(tokens, tokens)] * 100_000):
    if trainer.step_count == 1 and session.rank == 0:
        os.kill(launcher, signal.SIGTERM)
    trainer.step(inputs, targets)
assert trainer.is_stopping
trainer.save(sys.argv[1])
"""

HANGS = """
trainer.step(*next(session.shard([(tokens, tokens)])))
if session.rank == 0:
    os.kill(launcher, signal.SIGTERM)
while True:
    signal.pause()
"""
