"""What the demo learns of its own run: `meshwright calibrate`, and the prediction after it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli.demo.process import ended_with
from planner.cli.demo.service import last_line
from planner.cli.demo.steps import DemoError
from planner.cli.demo.training import RUNS

if TYPE_CHECKING:
    from planner.schema.plan import Interval, Plan

CALIBRATE_SECONDS_LIMIT = 300.0
NOT_TAKEN = 3


def calibrated_step(plan: Plan, directory: Path) -> Interval | None:
    """Return the predicted step of the plan after its own run, `None` where that did not help.

    Raises:
        DemoError: if the run cannot be learnt from.
    """
    from planner import planning
    from planner.schema.calibration import CalibrationProfile

    path, log = directory / "here.yaml", directory / "calibrate.log"
    path.unlink(missing_ok=True)
    command = [sys.executable, "-m", "planner.cli", "calibrate", str(directory / RUNS)]
    code = ended_with(
        [*command, "--out", str(path)], log=log, seconds_limit=CALIBRATE_SECONDS_LIMIT
    )
    if code == NOT_TAKEN:
        return None
    if code != 0:
        raise DemoError(f"`meshwright calibrate` ended with code {code}: {last_line(log)}")
    job = plan.job.resolved
    learnt = CalibrationProfile.read(path).calibration()
    changed = job.model_copy(update={"calibration": learnt})
    found = planning.estimate(plan.model, plan.cluster, changed, plan.strategy)
    return found.prediction.step_seconds
