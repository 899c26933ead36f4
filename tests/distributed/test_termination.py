"""A run that is asked to end saves after its step, and one that does not is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from planner.schema.run import RunReport
from tests.distributed.forking_launches import LIMIT_SECONDS, ForkingLaunches
from tests.distributed.group import ROOT
from tests.distributed.plans import cpu_plan

pytestmark = pytest.mark.distributed


def _plan(tmp_path: Path) -> str:
    path = tmp_path / "plan.json"
    path.write_text(cpu_plan(data_parallel_degree=2).to_json())
    return str(path)


def _script(tmp_path: Path, script: str) -> str:
    path = tmp_path / "script.py"
    path.write_text(f"{BEGINS}\n{script}")
    return str(path)


def _words(tmp_path: Path, script: str) -> tuple[str, ...]:
    report = ("--report", str(tmp_path / "report.json"))
    return (_plan(tmp_path), *report, "--", _script(tmp_path, script))


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


def test_a_script_ends_after_the_steps_that_it_is_allowed(
    launches: ForkingLaunches, tmp_path: Path
) -> None:
    words = _words(tmp_path, GOES_ON)
    result = launches.launch(tmp_path, words[0], "--steps", "3", *words[1:])
    assert result.returncode == 0, result.stderr
    report = RunReport.read(tmp_path / "report.json")
    assert [len(rank.step_seconds) for rank in report.ranks] == [3, 3]
    assert report.status == "stopped"


def test_ranks_of_torchrun_save_within_its_limit(tmp_path: Path) -> None:
    """It hands the signal on, and has an exit status of its own."""
    words = ["--standalone", "--nproc-per-node", "2", "--shutdown-timeout", str(LIMIT_SECONDS)]
    words += [_script(tmp_path, STOPS), str(tmp_path / "saved")]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *words],
        cwd=ROOT,
        env={**os.environ, "MESHWRIGHT_PLAN": _plan(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert "error: " not in done.stderr
    record = json.loads((tmp_path / "saved" / "checkpoint.json").read_text())
    assert 2 <= record["step"] < 100_000


def test_a_rank_of_torchrun_that_is_not_in_a_step_ends_at_once_when_another_has_failed(
    tmp_path: Path,
) -> None:
    """It would go on with what it does, up to its grace or torchrun's own limit."""
    words = ["--standalone", "--nproc-per-node", "2", "--shutdown-timeout", str(LIMIT_SECONDS)]
    grace = {"MESHWRIGHT_GRACE_SECONDS": str(10 * LIMIT_SECONDS)}
    own = {"MESHWRIGHT_PLAN": _plan(tmp_path), "PYTHONPATH": str(ROOT), **grace}
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *words, _script(tmp_path, FAILS_ALONE)],
        cwd=ROOT,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode != 0
    assert "RuntimeError: rank 1 alone" in done.stderr


def test_a_run_that_does_not_end_within_its_grace_is_killed(
    launches: ForkingLaunches, tmp_path: Path
) -> None:
    result = launches.launch(tmp_path, *_words(tmp_path, HANGS))
    assert result.returncode == 1
    assert result.stderr == "error: stopped by SIGTERM\n"


BEGINS = """
import os, signal, sys
os.environ.setdefault("MESHWRIGHT_GRACE_SECONDS", "1" if len(sys.argv) == 1 else "60")
import torch
import meshwright
from executor.losses import next_token_loss
from executor.models.decoder import Decoder

session = meshwright.start()
graph = session.plan.model.resolved
trainer = session.parallelize(lambda: Decoder(graph), next_token_loss, torch.optim.AdamW)
tokens = torch.zeros((8, 16), dtype=torch.long)
launcher = int(os.environ.get("MESHWRIGHT_LAUNCHER_PROCESS", os.getppid()))
"""

FAILS_ALONE = f"""
import time
for inputs, targets in session.shard([(tokens, tokens)] * 2):
    if trainer.step_count == 1:
        if session.rank == 1:
            raise RuntimeError("rank 1 alone")
        time.sleep({10 * LIMIT_SECONDS})
    trainer.step(inputs, targets)
"""

STOPS = """
for inputs, targets in session.shard([(tokens, tokens)] * 100_000):
    if trainer.step_count == 1 and session.rank == 0:
        os.kill(launcher, signal.SIGTERM)
    trainer.step(inputs, targets)
assert trainer.is_stopping
trainer.save(sys.argv[1])
"""

GOES_ON = """
for inputs, targets in session.shard([(tokens, tokens)] * 100_000):
    trainer.step(inputs, targets)
"""

HANGS = """
trainer.step(*next(session.shard([(tokens, tokens)])))
if session.rank == 0:
    os.kill(launcher, signal.SIGTERM)
while True:
    signal.pause()
"""
