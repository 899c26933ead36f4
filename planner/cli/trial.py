"""A trial: a plan run for some steps by the executor's launcher, or as another framework's job.

The folder of a tuning keeps, for each trial, its plan and all that it printed, and the runs that
were measured as rows for `validate` and `calibrate`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.answers.explain import describe_strategy
from planner.cli.template import Template, outcome_of
from planner.schema.tuning import TuningTrial
from planner.tuning.decision import NextTrial
from planner.tuning.outcome import WARM_UP_STEPS, failure_of, took_too_long
from planner.units import GIB

_RUNS = "runs.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How trials are run: where files go, the script or a framework's job, the timed steps.

    None goes on for longer than `seconds_most`.
    """

    folder: Path
    script: Sequence[str]
    step_count: int
    seconds_most: float
    template: Template | None = None
    device: str | None = None


def trial_of(following: NextTrial, launch: Launch, *, number: int) -> TuningTrial:
    """Return what came of running the plan; nothing survives an interrupt."""
    plan, candidate = following.plan, following.candidate
    launch.folder.mkdir(exist_ok=True)
    plan_path = launch.folder / f"trial-{number}.json"
    log = launch.folder / f"trial-{number}.log"
    plan_path.write_text(plan.to_json(), encoding="utf-8")
    started = time.monotonic()
    if launch.template is None:
        outcome = _launched(_command(plan_path, launch), launch, log=log)
    else:
        outcome = outcome_of(
            plan,
            launch.template,
            folder=launch.folder / f"trial-{number}",
            log=log,
            step_count=launch.step_count,
            seconds_most=launch.seconds_most,
        )
    return TuningTrial.model_validate(
        {
            "strategy": plan.strategy,
            "description": describe_strategy(plan.strategy),
            "predicted": candidate.prospect.step_seconds,
            "predicted_peak_bytes": candidate.peak_bytes,
            "fits_probability": candidate.prospect.fits_probability,
            "optimistic_seconds": following.optimistic_seconds,
            "log": str(log),
            "run_seconds": time.monotonic() - started,
            **outcome,
        }
    )


def _command(plan_path: Path, launch: Launch) -> list[str]:
    words = [sys.executable, "-m", "executor.launcher", "--json", str(plan_path)]
    words += ["--steps", str(launch.step_count + WARM_UP_STEPS)]
    words += ["--runs", str(launch.folder / _RUNS)]
    if launch.device is not None:
        words += ["--device", launch.device]
    return [*words, "--", *launch.script] if launch.script else words


def _launched(command: Sequence[str], launch: Launch, *, log: Path) -> Mapping[str, Any]:
    """Return what came of a run by the executor's launcher, as fields of a trial."""
    try:
        code, said = _ended(command, log=log, seconds_most=launch.seconds_most)
    except subprocess.TimeoutExpired:
        return took_too_long(launch.seconds_most)
    return _measured(launch.folder / _RUNS) if code == 0 else _failure(said, log, code)


def _ended(command: Sequence[str], *, log: Path, seconds_most: float) -> tuple[int, str]:
    """Return the exit code of a command and what it printed on stdout; messages go to `log`.

    Raises:
        subprocess.TimeoutExpired: if it took longer than `seconds_most`, and was ended.
    """
    with (
        log.open("wb") as messages,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=messages,
            start_new_session=True,
        ) as process,
    ):
        try:
            said, _ = process.communicate(timeout=seconds_most)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, said.decode("utf-8", errors="replace")


def _measured(rows: Path) -> Mapping[str, Any]:
    """Return the steps of the run that was added last."""
    row = json.loads(rows.read_text(encoding="utf-8").splitlines()[-1])
    steps, peak = row.get("steps_s") or (), row.get("peak_mem_gib")
    if not steps:
        reason = "no step: the script took no batch of session.shard"
        return {"outcome": "failed", "reason": reason}
    return {
        "outcome": "measured",
        "step_seconds": steps,
        "peak_memory_bytes": None if peak is None else peak * GIB,
    }


def _failure(said: str, log: Path, code: int) -> Mapping[str, Any]:
    """Return why a run ended early, as its launcher says it."""
    lines = [line for line in said.splitlines() if line.startswith('{"status": "error"')]
    if lines:
        reason = str(json.loads(lines[-1])["error"]["message"])
    else:
        printed = log.read_text(encoding="utf-8", errors="replace").splitlines()
        reason = printed[-1] if printed else f"ended with exit status {code} and no message"
    return failure_of(reason)
