"""Tracker: steps go to TensorBoard, Weights & Biases or MLflow, through their own packages."""

from __future__ import annotations

import atexit
import fcntl
import importlib
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from executor.errors import LaunchError
from executor.replaced_file import replace_file
from executor.step_rows import Measured
from executor.variables import OUTCOME_DIRECTORY, TRACKER
from planner.schema.plan import Plan

_FLUSH_SECONDS = 10  # what a rank that is killed loses at most; TensorBoard's own is 120
LAUNCH_PREFIX = "meshwright-run-"
_LEFT_RUN, _LOCK = "mlflow-run.json", "launcher.lock"
Log = Callable[[dict[str, float], int], None]
_ends: list[Callable[[bool], None]] = []


class Tracker:
    """Logs each step of rank 0, whose loss is that of all ranks."""

    def __init__(self, log: Log, *, tokens_per_step: int) -> None:
        self._log = log
        self._tokens_per_step = tokens_per_step

    @staticmethod
    def wanted(
        plan: Plan, variables: Mapping[str, str], *, rank: int, tokens_per_step: int
    ) -> Tracker | None:
        """Return rank 0's tracker of the kind that the environment names, `None` if it names none.

        It is ended when the process ends.

        Raises:
            LaunchError: if there is no such tracker, or its package is not installed.
        """
        text = variables.get(TRACKER)
        if not text or rank != 0:
            return None
        kind, _, place = text.partition(":")
        if kind not in _TRACKERS or not place:
            raise LaunchError(
                "names no tracker",
                field=TRACKER,
                value=text,
                remedy="give tensorboard:DIRECTORY, wandb:PROJECT or mlflow:EXPERIMENT",
            )
        directory = variables.get(OUTCOME_DIRECTORY)
        log = _TRACKERS[kind](place, plan, None if directory is None else Path(directory))
        return Tracker(log, tokens_per_step=tokens_per_step)

    def step_begins(self) -> None:
        """Do nothing: a step is logged once it is measured."""

    def step_ended(self, step: int, measured: Measured) -> None:
        """Log what step number `step` measured; what is not finite is left out."""
        values = {
            "loss": measured.loss,
            "step_seconds": measured.seconds,
            "between_seconds": measured.between_seconds,
        }
        seconds = measured.seconds + measured.between_seconds
        if seconds > 0 and self._tokens_per_step:
            tokens = self._tokens_per_step * measured.token_share
            values["tokens_per_second"] = tokens / seconds
        if measured.peak_memory_bytes is not None:
            values["peak_memory_bytes"] = float(measured.peak_memory_bytes)
        self._log({name: value for name, value in values.items() if math.isfinite(value)}, step)


def end_trackers(*, has_failed: bool) -> None:
    """End, once, what steps are logged to: as a run that is done, or that has failed."""
    while _ends:
        _ends.pop()(has_failed)


@contextmanager
def left_run_ended(directory: Path) -> Iterator[None]:
    """End, behind the block, a run that rank 0 has begun and did not live to end.

    MLflow's would be running for ever; W&B finds by itself that one has crashed. Where the launcher
    was killed as well, the next one here that logs to MLflow ends it, before the block.
    """
    is_logged = os.environ.get(TRACKER, "").startswith("mlflow:")
    for path in directory.parent.glob(f"{LAUNCH_PREFIX}*/{_LEFT_RUN}") if is_logged else ():
        with suppress(OSError), (path.parent / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its launcher lives no more
            _end_left_run(path.parent, has_failed=True)
            shutil.rmtree(path.parent)
    with (directory / _LOCK).open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            yield
        except BaseException:
            _end_left_run(directory, has_failed=True)
            raise
        _end_left_run(directory, has_failed=False)


def _end_left_run(directory: Path, *, has_failed: bool) -> None:
    path = directory / _LEFT_RUN
    if not path.is_file():
        return
    left = json.loads(path.read_text(encoding="utf-8"))
    package = _package("mlflow", installed_as="mlflow")
    try:
        client = package.MlflowClient(tracking_uri=left["tracking_uri"])
        client.set_terminated(left["run_id"], status=_mlflow_status(has_failed=has_failed))
    except package.exceptions.MlflowException as error:
        line = f"warning: the run {left['run_id']} was not ended in MLflow: {error}"
        print(line, file=sys.stderr, flush=True)  # noqa: T201 - the training's own end counts


def _end_with_process(end: Callable[[bool], None]) -> None:
    _ends.append(end)
    atexit.register(_end_at_exit)


def _end_at_exit() -> None:
    """End as failed where an error has ended the script, which the interpreter notes."""
    end_trackers(has_failed=getattr(sys, "last_value", None) is not None)


def _tensorboard(place: str, plan: Plan, _directory: Path | None) -> Log:
    package = _package("torch.utils.tensorboard", installed_as="tensorboard")
    writer = package.SummaryWriter(place, flush_secs=_FLUSH_SECONDS)
    _end_with_process(lambda _has_failed: writer.close())
    writer.add_text("plan", plan.id)

    def log(values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    return log


def _wandb(place: str, plan: Plan, _directory: Path | None) -> Log:
    package = _package("wandb", installed_as="wandb")
    run = package.init(project=place, config=_parameters(plan))
    _end_with_process(lambda has_failed: run.finish(int(has_failed)))
    return lambda values, step: run.log(values, step=step)


def _mlflow(place: str, plan: Plan, directory: Path | None) -> Log:
    package = _package("mlflow", installed_as="mlflow")
    package.set_experiment(place)
    run = package.start_run()
    path = None if directory is None else directory / _LEFT_RUN
    if path is not None:
        left = {"run_id": run.info.run_id, "tracking_uri": package.get_tracking_uri()}
        replace_file(path, json.dumps(left), is_synced=False)

    def end(has_failed: bool) -> None:
        package.end_run(_mlflow_status(has_failed=has_failed))
        if path is not None:
            path.unlink(missing_ok=True)

    _end_with_process(end)
    package.log_params(_parameters(plan))
    return lambda values, step: package.log_metrics(values, step=step)


def _mlflow_status(*, has_failed: bool) -> str:
    return "FAILED" if has_failed else "FINISHED"


_TRACKERS: dict[str, Callable[[str, Plan, Path | None], Log]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}


def _package(name: str, *, installed_as: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        is_there = error.name is not None and not name.startswith(error.name)
        lacking = f"lacks {error.name}, which it imports" if is_there else "is not installed"
        raise LaunchError(
            f"needs the package {installed_as}, which {lacking}",
            field=TRACKER,
            value=installed_as,
            remedy=f"run: pip install {installed_as}",
        ) from None


def _parameters(plan: Plan) -> dict[str, Any]:
    """Return what a run is known by: short texts and numbers, as MLflow takes parameters."""
    strategy = plan.strategy
    return {
        "plan": plan.id,
        "model": plan.model.resolved.name,
        "cluster": plan.cluster.resolved.name,
        "tensor_parallel_degree": strategy.tensor_parallel_degree,
        "pipeline_parallel_degree": strategy.pipeline_parallel_degree,
        "context_parallel_degree": strategy.context_parallel_degree,
        "expert_parallel_degree": strategy.expert_parallel_degree,
        "data_parallel_replicate_degree": strategy.replicate_degree,
        "data_parallel_shard_degree": strategy.shard_degree,
        "predicted_step_seconds": plan.prediction.step_seconds.p50,
    }
