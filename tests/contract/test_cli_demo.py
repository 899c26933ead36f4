"""The demo, whole: what a newcomer's first command does, in an empty directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from planner.schema.plan import Plan
from planner.schema.run import RunReport

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 480


def run_demo(directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the demo without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "planner.cli", "demo", "--directory", str(directory / "story")],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """The demo run once, and where it left its files."""
    directory = tmp_path_factory.mktemp("demo")
    return run_demo(directory), directory / "story"


pytestmark = [pytest.mark.distributed, pytest.mark.slow, pytest.mark.timeout(TIMEOUT_SECONDS)]


def test_demo_ends_well_and_says_nothing_on_stderr(told):
    done, _ = told
    assert (done.returncode, done.stderr) == (0, "")


def test_every_step_is_ticked(told):
    done, _ = told
    assert re.findall(r"(\d)/6 ✓", done.stdout) == ["1", "2", "3", "4", "5", "6"]


def test_both_plans_are_proven_and_can_be_compared(told):
    done, _ = told
    rows = [line for line in done.stdout.splitlines() if "h100-sxm5-80gb" in line]
    assert len(rows) == 2
    assert all("optimal" in row for row in rows)
    assert re.search(r"http://127\.0\.0\.1:\d+/compare\?plan=[\w-]+&plan=[\w-]+", done.stdout)


def test_plan_for_this_machine_was_trained_and_its_loss_fell(told):
    _, directory = told
    plan, report = Plan.read(directory / "plan.json"), RunReport.read(directory / "report.json")
    assert report.plan_id == plan.id
    assert (report.world_size, len(report.losses)) == (4, 20)
    assert report.losses[-1] < report.losses[0]


def test_measured_stands_beside_predicted(told):
    done, _ = told
    assert "measured / predicted" in done.stdout
    assert "step (median)" in done.stdout


def test_step_that_fails_is_named(tmp_path):
    done = run_demo(tmp_path, MESHWRIGHT_SOLVER_PROCESSES="none")
    assert done.returncode == 1
    assert done.stderr.startswith("error: demo step 1 of 6 (start the service on SQLite) failed:")
    assert done.stderr.count("\n") == 1
