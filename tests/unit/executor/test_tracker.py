"""Steps are logged by the tracker that the environment names, through its own package."""

from __future__ import annotations

import fcntl
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch")

from executor.errors import LaunchError
from executor.tracker import Tracker, end_trackers, left_run_ended
from executor.trainer import StepMetrics
from tests.builders import a_plan

A_RUN = SimpleNamespace(info=SimpleNamespace(run_id="run-7"))


def _tracker(text: str, *, rank: int = 0) -> Tracker | None:
    variables = {"MESHWRIGHT_TRACKER": text}
    return Tracker.wanted(a_plan(), variables, rank=rank, tokens_per_step=2048)


def _step(tracker: Tracker | None, loss: float = 2.5) -> None:
    assert tracker is not None
    metrics = StepMetrics(loss=loss, seconds=0.3, peak_memory_bytes=None, between_seconds=0.2)
    tracker.step_ended(3, metrics)


def test_tensorboard_reads_what_was_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accumulators = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="tensorboard is not installed",
    )
    at_exit: list[Any] = []
    monkeypatch.setattr("atexit.register", at_exit.append)
    _step(_tracker(f"tensorboard:{tmp_path}"))
    for close in at_exit:
        close()
    events = accumulators.EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(3, 2.5)]
    assert [event.value for event in events.Scalars("tokens_per_second")] == [4096.0]


def test_wandb_gets_steps_and_is_finished_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the package: what it is told is `wandb.init`, `Run.log`, `Run.finish`."""
    told: list[Any] = []
    run = SimpleNamespace(
        log=lambda values, step: told.append((values, step)),
        finish=told.append,
    )
    package = SimpleNamespace(init=lambda project, config: told.append((project, config)) or run)
    monkeypatch.setitem(sys.modules, "wandb", package)  # type: ignore[arg-type]
    at_exit: list[Any] = []
    monkeypatch.setattr("atexit.register", at_exit.append)
    _step(_tracker("wandb:llama"), loss=float("nan"))
    at_exit[0]()
    (project, config), logged, ended = told
    assert project == "llama"
    assert config["plan"] == "plan-0123456789abcdef"
    assert (config["model"], config["data_parallel_shard_degree"]) == ("tiny", 2)
    assert all(isinstance(value, str | int | float) for value in config.values())
    speeds = {"step_seconds": 0.3, "between_seconds": 0.2, "tokens_per_second": 4096.0}
    assert logged == (speeds, 3)
    assert ended == 0


@pytest.mark.parametrize(("error", "status"), [(None, "FINISHED"), (ValueError(), "FAILED")])
def test_mlflow_gets_steps_and_its_run_is_ended(
    error: Exception | None, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for the package, with the functions of it that are called."""
    monkeypatch.setattr(sys, "last_value", error, raising=False)
    told: list[Any] = []
    package = SimpleNamespace(
        set_experiment=told.append,
        start_run=lambda: told.append("started") or A_RUN,
        end_run=told.append,
        log_params=lambda parameters: told.append(parameters["plan"]),
        log_metrics=lambda values, step: told.append((values["loss"], step)),
    )
    monkeypatch.setitem(sys.modules, "mlflow", package)  # type: ignore[arg-type]
    at_exit: list[Any] = []
    monkeypatch.setattr("atexit.register", at_exit.append)
    _step(_tracker("mlflow:llama"))
    at_exit[0]()
    assert told == ["llama", "started", "plan-0123456789abcdef", (2.5, 3), status]


@pytest.mark.parametrize(
    ("ended", "fails", "told_last"),
    [(False, True, ("run-7", "FAILED")), (False, False, ("run-7", "FINISHED")), (True, True, None)],
)
def test_a_run_that_rank_0_did_not_live_to_end_is_ended_by_its_launcher(
    *,
    ended: bool,
    fails: bool,
    told_last: tuple[str, str] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Any] = []
    client = SimpleNamespace(set_terminated=lambda run, status: told.append((run, status)))
    package = SimpleNamespace(
        set_experiment=str,
        start_run=lambda: A_RUN,
        end_run=str,
        get_tracking_uri=lambda: "file:runs",
        log_params=dict,
        MlflowClient=lambda tracking_uri: client if tracking_uri == "file:runs" else None,
        exceptions=SimpleNamespace(MlflowException=OSError),
    )
    monkeypatch.setitem(sys.modules, "mlflow", package)  # type: ignore[arg-type]
    monkeypatch.setattr("atexit.register", lambda _end: None)
    variables = {
        "MESHWRIGHT_TRACKER": "mlflow:llama",
        "MESHWRIGHT_OUTCOME_DIRECTORY": str(tmp_path),
    }
    Tracker.wanted(a_plan(), variables, rank=0, tokens_per_step=1)
    if ended:
        end_trackers(has_failed=True)
    with pytest.raises(ValueError) if fails else nullcontext(), left_run_ended(tmp_path):  # noqa: PT011
        if fails:
            raise ValueError
    assert told == ([] if told_last is None else [told_last])
    end_trackers(has_failed=False)


def test_the_next_launcher_ends_what_a_killed_one_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two folders one has a launcher that lives, and holds its lock."""
    told: list[Any] = []
    client = SimpleNamespace(set_terminated=lambda run, status: told.append((run, status)))
    package = SimpleNamespace(
        MlflowClient=lambda tracking_uri: client,  # noqa: ARG005 - as the package names it
        exceptions=SimpleNamespace(MlflowException=OSError),
    )
    monkeypatch.setitem(sys.modules, "mlflow", package)  # type: ignore[arg-type]
    monkeypatch.setenv("MESHWRIGHT_TRACKER", "mlflow:llama")
    own, living, killed = (tmp_path / f"meshwright-run-{name}" for name in "abc")
    own.mkdir()
    for folder in (living, killed):
        folder.mkdir()
        (folder / "launcher.lock").touch()
        left = {"run_id": folder.name, "tracking_uri": "file:runs"}
        (folder / "mlflow-run.json").write_text(json.dumps(left))
    with (living / "launcher.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with left_run_ended(own):
            assert told == [("meshwright-run-c", "FAILED")]
    assert (living.is_dir(), killed.is_dir()) == (True, False)


def test_a_rank_that_is_killed_ends_its_tracker_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    run = SimpleNamespace(finish=told.append)
    package = SimpleNamespace(init=lambda **_given: run)
    monkeypatch.setitem(sys.modules, "wandb", package)  # type: ignore[arg-type]
    at_exit: list[Any] = []
    monkeypatch.setattr("atexit.register", at_exit.append)
    _tracker("wandb:llama")
    end_trackers(has_failed=True)
    at_exit[0]()
    assert told == [1]


def test_one_rank_logs() -> None:
    assert _tracker("tensorboard:somewhere", rank=1) is None


@pytest.mark.parametrize("text", ["paper:notebook", "tensorboard", "wandb:"])
def test_a_tracker_that_there_is_not_is_refused(text: str) -> None:
    with pytest.raises(LaunchError, match="give tensorboard:DIRECTORY, wandb:PROJECT or mlflow"):
        _tracker(text)


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(LaunchError, match=r"needs the package wandb.*pip install wandb"):
        _tracker("wandb:llama")


def test_a_package_that_lacks_another_is_not_said_to_be_absent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "wandb.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    with pytest.raises(LaunchError, match="package wandb, which lacks no_such_package"):
        _tracker("wandb:llama")
