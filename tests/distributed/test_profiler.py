"""The profile of this machine: real ranks are measured, and a plan takes what was fitted.

The demo of `make test-full` measures four, in `tests/contract/test_cli_demo.py`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from executor.profiler_collectives import OPERATIONS
from planner.schema.cluster import Cluster
from planner.schema.figures import MachineFigures
from tests.distributed.group import ROOT

pytestmark = pytest.mark.distributed

LIMIT_SECONDS = 800


def _run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TORCH_CPP_LOG_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )


@pytest.mark.parametrize("rank_count", [1, pytest.param(2, marks=pytest.mark.full)])
def test_ranks_are_measured_and_planned_for(rank_count: int, tmp_path: Path) -> None:
    words = ("profile", "--ranks", str(rank_count), "--device", "cpu", "--seconds", "1", "--json")
    done = _run(tmp_path, "planner.cli", *words, "--out", "here.json")
    assert done.returncode == 0, done.stderr
    assert "[1/" in done.stderr
    cluster = Cluster.model_validate_json(done.stdout)
    assert cluster == Cluster.read(tmp_path / "here.json")
    assert cluster.device_count == rank_count
    batch = ("--global-batch-size", "2", "--precision", "fp32", "--out", "plan.json")
    planned = _run(tmp_path, "planner.cli", "plan", "tiny-llama-cpu", "here.json", *batch)
    assert planned.returncode == 0, planned.stderr
    assert json.loads((tmp_path / "plan.json").read_text())["cluster"]["resolved"] == json.loads(
        cluster.to_json()
    )
    assert _run(tmp_path, "planner.cli", "verify", "plan.json").returncode == 0


def test_what_ranks_do_together_is_measured(tmp_path: Path) -> None:
    words = ("--ranks", "2", "--device", "cpu", "--seconds", "1", "--out", "figures.json")
    done = _run(tmp_path, "executor.profiler", *words)
    assert done.returncode == 0, done.stderr
    figures = MachineFigures.read(tmp_path / "figures.json")
    assert {figure.kind for figure in figures.collectives} == set(OPERATIONS)
    assert {figure.rank_count for figure in figures.collectives} == {2}
    assert 0.0 < figures.hidden_reduce_ratio <= 1.0
    shown = re.findall(r"^\[(\d+)/(\d+)\]", done.stderr, re.MULTILINE)
    assert [int(turn) for turn, _ in shown] == list(range(1, int(shown[0][1]) + 1))


def test_gpus_that_are_not_there_are_not_measured(tmp_path: Path) -> None:
    done = _run(tmp_path, "planner.cli", "profile", "--device", "cuda", "--ranks", "64", "--json")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "--device cpu" in done.stderr
    assert json.loads(done.stdout)["status"] == "error"
