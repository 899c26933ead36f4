"""The demo, whole: what a newcomer's first command does, in an empty directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from planner.hardware import profile_of
from planner.importers.measured_runs import read_measured_runs
from planner.requests.references import read_cluster
from planner.schema.cluster import Cluster
from planner.schema.plan import Plan
from planner.schema.run import RunReport

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).parent / "samples/cpu-ranks.json"
TIMEOUT_SECONDS = 1800
STEP_COUNT = 4


def run_demo(
    directory: Path, *options: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the demo without a terminal."""
    words = ["demo", "--directory", str(directory / "story"), "--steps", str(STEP_COUNT)]
    return subprocess.run(
        [sys.executable, "-m", "planner.cli", *words, *options],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )


pytestmark = [pytest.mark.distributed, pytest.mark.slow, pytest.mark.timeout(TIMEOUT_SECONDS)]


@pytest.mark.full
def test_the_whole_story_is_told(tmp_path):
    """What is measured need not be exact."""
    done = run_demo(tmp_path, "--seconds", "1")
    assert "4/7 ✓ measure the 4 CPU ranks of this machine" in done.stdout
    story = tmp_path / "story"
    assert_the_story_is_told(done, story, Cluster.read(story / "cluster.json"))


def test_the_story_of_a_machine_that_was_profiled_before_is_told(tmp_path):
    """Profiles of ranks are measured in `tests/distributed/test_profiler.py`."""
    done = run_demo(tmp_path, "--profile", str(RECORDED))
    assert "4/7 ✓ take the CPU ranks of this machine from" in done.stdout
    assert_the_story_is_told(done, tmp_path / "story", Cluster.read(RECORDED))


def assert_the_story_is_told(
    done: subprocess.CompletedProcess[str], story: Path, cluster: Cluster
) -> None:
    """Fail unless all seven steps are told, and their documents are those of this cluster."""
    assert (done.returncode, done.stderr) == (0, "")
    assert re.findall(r"(\d)/7 ✓", done.stdout) == list("1234567")
    rows = [line for line in done.stdout.splitlines() if "h100-sxm5-80gb" in line]
    assert len(rows) == 2
    assert all("optimal" in row for row in rows)
    assert re.search(r"http://127\.0\.0\.1:\d+/compare\?plan=[\w-]+&plan=[\w-]+", done.stdout)
    assert "measured / predicted" in done.stdout
    assert "80 % interval" in done.stdout
    assert "step (median)" in done.stdout
    assert "calibrated on this run" in done.stdout or "calibrating on this run" in done.stdout
    plan, report = Plan.read(story / "plan.json"), RunReport.read(story / "report.json")
    assert plan.cluster.resolved == cluster
    assert report.plan_id == plan.id
    assert (report.world_size, len(report.losses)) == (4, STEP_COUNT)
    assert report.losses[-1] < report.losses[0]
    (run,) = read_measured_runs(story / "runs.jsonl")
    assert run.plan == plan
    assert run.step_time_s == report.median_step_seconds
    assert len(run.steps_s) == STEP_COUNT - 1  # the first warms up
    profile = profile_of(plan.cluster.resolved, "cpu-measured")
    assert profile.step_error_ratio is not None


def test_a_profile_of_other_devices_is_refused_before_anything_is_started(tmp_path):
    cluster = tmp_path / "cluster.json"
    cluster.write_text(read_cluster("8xh100-sxm5-80gb").resolved.to_json(), encoding="utf-8")
    done = run_demo(tmp_path, "--profile", str(cluster))
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"error: --profile {cluster}: is not a profile of CPU ranks (got h100"
    )
    assert not (tmp_path / "story").exists()


def test_step_that_fails_is_named(tmp_path):
    done = run_demo(tmp_path, MESHWRIGHT_SOLVER_PROCESSES="none")
    assert done.returncode == 1
    assert done.stderr.startswith("error: demo step 1 of 7 (start the service on SQLite) failed:")
    assert done.stderr.count("\n") == 1
