"""Trackers with their own packages, offline: what was logged is read back once a run has ended."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from executor.tracker import left_run_ended
from tests.exports.conftest import ROOT, needed

BLOCK_BYTES, HEADER_BYTES, WHOLE_OR_LAST = 2**15, 7, {1, 4}
PROGRAM = """
import os, sys
from executor.tracker import Tracker
from executor.trainer import StepMetrics
from tests.builders import a_plan

variables = {**os.environ, "MESHWRIGHT_TRACKER": sys.argv[1]}
tracker = Tracker.wanted(a_plan(), variables, rank=0, tokens_per_step=2048)
for step, loss in ((1, 2.5), (2, float("nan")), (3, 1.5)):
    tracker.step_ended(step, StepMetrics(loss=loss, seconds=0.5, peak_memory_bytes=None))
"""
FAILS = f"{PROGRAM}\nraise ValueError('no such row')\n"
IS_KILLED = f"{PROGRAM}\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"


def logged_in(folder: Path, tracker: str, program: str = PROGRAM, **variables: str) -> None:
    """Log three steps in a process that ends as a rank does."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, tracker],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    codes = {PROGRAM: 0, FAILS: 1, IS_KILLED: -signal.SIGKILL}
    assert done.returncode == codes[program], done.stderr[-4000:]


def test_mlflow_reads_what_was_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # files need no database's packages
    mlflow = needed("mlflow")
    store = (tmp_path / "store").as_uri()
    logged_in(tmp_path, "mlflow:llama", MLFLOW_TRACKING_URI=store)
    client = mlflow.MlflowClient(tracking_uri=store)
    experiment = client.get_experiment_by_name("llama")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["plan"] == "plan-0123456789abcdef"
    losses = client.get_metric_history(run.info.run_id, "loss")
    assert [(item.step, item.value) for item in losses] == [(1, 2.5), (3, 1.5)]
    speeds = client.get_metric_history(run.info.run_id, "tokens_per_second")
    assert [item.value for item in speeds] == [4096.0] * 3


def test_wandb_reads_what_was_logged(tmp_path: Path):
    needed("wandb")
    logged_in(tmp_path, "wandb:llama", WANDB_MODE="offline", WANDB_SILENT="true")
    (file,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    records = list(records_of(file))
    rows = [
        {item.nested_key[0] if item.nested_key else item.key: item.value_json for item in each}
        for each in (record.history.item for record in records if record.HasField("history"))
    ]
    assert [(row["_step"], row.get("loss")) for row in rows] == [
        ("1", "2.5"),
        ("2", None),
        ("3", "1.5"),
    ]
    assert any(record.HasField("exit") and record.exit.exit_code == 0 for record in records)
    (run,) = (record.run for record in records if record.HasField("run"))
    assert run.project == "llama"
    config = {item.key: item.value_json for item in run.config.update}
    assert config["plan"] == '"plan-0123456789abcdef"'


def test_a_run_that_has_failed_is_no_finished_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = needed("mlflow")
    needed("wandb")
    store = (tmp_path / "store").as_uri()
    logged_in(tmp_path, "mlflow:llama", FAILS, MLFLOW_TRACKING_URI=store)
    client = mlflow.MlflowClient(tracking_uri=store)
    (run,) = client.search_runs([client.get_experiment_by_name("llama").experiment_id])
    assert run.info.status == "FAILED"
    logged_in(tmp_path, "wandb:llama", FAILS, WANDB_MODE="offline", WANDB_SILENT="true")
    (file,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    ends = [item.exit.exit_code for item in records_of(file) if item.HasField("exit")]
    assert ends == [1]


def test_a_run_whose_rank_was_killed_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its launcher says so; nobody would, and it would be running for ever."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = needed("mlflow")
    store = (tmp_path / "store").as_uri()
    given = {"MLFLOW_TRACKING_URI": store, "MESHWRIGHT_OUTCOME_DIRECTORY": str(tmp_path)}
    logged_in(tmp_path, "mlflow:llama", IS_KILLED, **given)
    with pytest.raises(ValueError, match="killed"), left_run_ended(tmp_path):
        raise ValueError("rank 0 was killed")
    client = mlflow.MlflowClient(tracking_uri=store)
    (run,) = client.search_runs([client.get_experiment_by_name("llama").experiment_id])
    assert run.info.status == "FAILED"


def records_of(file: Path):
    """Yield what W&B wrote of a run: records of LevelDB's log format behind a header."""
    from wandb.proto.wandb_internal_pb2 import Record  # noqa: PLC0415 - where it is there

    content, place, parts = file.read_bytes(), HEADER_BYTES, []
    while place + HEADER_BYTES <= len(content):
        left = BLOCK_BYTES - place % BLOCK_BYTES
        if left < HEADER_BYTES:
            place += left
            continue
        length, kind = struct.unpack_from("<HB", content, place + 4)
        place += HEADER_BYTES + length
        parts.append(content[place - length : place])
        if kind in WHOLE_OR_LAST:
            record = Record()
            record.ParseFromString(b"".join(parts))
            parts = []
            yield record
