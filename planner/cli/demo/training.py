"""The demo's training run: `meshwright run` on this machine's ranks, and its report."""

from __future__ import annotations

import sys
from pathlib import Path

from planner.cli.demo.process import ended_with
from planner.cli.demo.service import last_line
from planner.cli.demo.steps import DemoError
from planner.schema.run import RunReport

RUN_SECONDS_LIMIT = 900.0
RUNS = "runs.jsonl"


def train(plan_path: Path, *, step_count: int, directory: Path) -> RunReport:
    """Return the report of `step_count` steps trained with the plan at `plan_path`.

    The run is kept as a row of `runs.jsonl`.

    Raises:
        DemoError: if the run fails, takes too long, or its loss does not fall.
    """
    report_path, log = directory / "report.json", directory / "run.log"
    report_path.unlink(missing_ok=True)
    (directory / RUNS).unlink(missing_ok=True)
    command = [sys.executable, "-m", "planner.cli", "run", str(plan_path)]
    command += ["--steps", str(step_count), "--report", str(report_path)]
    command += ["--runs", str(directory / RUNS)]
    code = ended_with(command, log=log, seconds_limit=RUN_SECONDS_LIMIT)
    if code != 0:
        raise DemoError(f"`meshwright run` ended with code {code}: {last_line(log)}; see {log}")
    report = RunReport.read(report_path)
    losses = report.finite_losses
    if report.status != "completed" or len(losses) < step_count:
        raise DemoError(f"only {len(losses)} of {step_count} steps were trained; see {log}")
    first, last = losses[0], losses[-1]
    if last >= first:
        raise DemoError(f"the loss did not fall: {first:.3f} at first, {last:.3f} at last")
    return report
