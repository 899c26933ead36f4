"""Real training on two agents: to its end, and on after one of them is gone for good."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.fleet import Fleet
from tests.chaos.rounds import TWO_NODES, settle
from tests.chaos.server import ROOT, Tempo, wait_until

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(1800)]

LIMIT_SECONDS = 900.0
TEMPO = Tempo(heartbeat=0.5, lease=6.0, poll=2.0, acknowledge=8.0, replan_after=1.0)
# Losses in fp32 of one run in two layouts: sums in another order, over some tens of steps.
RELATIVE_TOLERANCE = 1e-4
TRAIN = """
[commands.train]
argv = ["{launcher}", "--steps", "{steps}"]
environment = { MESHWRIGHT_CHECKPOINT_STEPS = "{every}" }
[commands.train.arguments]
steps = { default = 20, pattern = "[0-9]+" }
every = { default = 10, pattern = "[0-9]+" }
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A server and two agents of two ranks each."""
    found = Fleet(tmp_path_factory.mktemp("fleet"), tempo=TEMPO)
    try:
        found.start(TRAIN, node_count=2)
        yield found
    finally:
        found.close()


def measured(fleet: Fleet, run_id: str) -> list[dict[str, Any]]:
    """All rows of a run."""
    rows: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = fleet.server.ask("GET", f"/v1/runs/{run_id}/metrics?limit=1000{cursor}")
        if not page["items"]:
            return rows
        rows += page["items"]
        cursor = f"&cursor={page['next_cursor']}"


def saved_step(fleet: Fleet, run_id: str) -> int:
    """The step of the run's checkpoint, 0 before there is one."""
    found = [
        json.loads(path.read_text())["step"]
        for path in fleet.folder.glob("checkpoints/*/checkpoint.json")
        if run_id in str(path)
    ]
    return max(found, default=0)


def test_two_agents_of_two_ranks_train_one_plan_to_its_end(fleet: Fleet) -> None:
    run_id = fleet.run(fleet.plan(TWO_NODES), command="train", arguments={"steps": 6})
    run = fleet.wait_for(run_id, set(), LIMIT_SECONDS)
    assert run["state"] == "succeeded", run
    assert [lease["ranks"] for lease in run["leases"]] == [[0, 1], [2, 3]]
    rows = measured(fleet, run_id)
    assert {row["rank"] for row in rows} == {0, 1, 2, 3}
    first, last = ([row["loss"] for row in rows if row["step"] == step] for step in (1, 6))
    assert len(first) == len(last) == 4
    assert max(last) < min(first) - 0.1
    assert all(row["peak_memory_bytes"] for row in rows if row["step"] == 7)
    log = fleet.server.ask("GET", f"/v1/runs/{run_id}/logs?node=0")
    assert "step   6/6  loss" in log["text"]


def test_what_is_left_goes_on_from_the_checkpoint_when_a_node_is_gone_for_good(
    fleet: Fleet, tmp_path: Path
) -> None:
    """The loss goes on as that of a run that nothing befell, in the new layout."""
    settle(fleet)
    steps = {"steps": 60, "every": 5}
    run_id = fleet.run(fleet.plan(TWO_NODES), command="train", arguments=steps, restart_limit=3)
    wait_until(lambda: saved_step(fleet, run_id) >= 5, LIMIT_SECONDS, "no checkpoint")
    fleet.nodes[1].die()
    run = fleet.wait_for(run_id, set(), LIMIT_SECONDS)
    assert run["state"] == "succeeded", run
    history = fleet.server.ask("GET", f"/v1/runs/{run_id}/history")["items"]
    (change,) = [item["change"] for item in history if item["kind"] == "replanned"]
    assert change["lost_agents"] == ["node-1"]
    assert (change["old_device_count"], change["new_device_count"]) == (4, 2)
    assert change["resumed_from_step"] >= 5
    rows = [row for row in measured(fleet, run_id) if row["rank"] == 0]
    resumed = min(row["step"] for row in rows if row["attempt"] > 1)  # a slow start may cost one
    assert resumed > 5
    undisturbed = reference_losses(fleet, run["plan_id"], tmp_path, step_count=resumed + 8)
    for row in rows:
        if row["step"] <= len(undisturbed):
            expected = undisturbed[row["step"] - 1]
            assert row["loss"] == pytest.approx(expected, rel=RELATIVE_TOLERANCE), row


def reference_losses(
    fleet: Fleet, plan_id: str, tmp_path: Path, *, step_count: int
) -> tuple[float, ...]:
    """The losses of the new plan when it is launched by hand, from the first step on."""
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(fleet.server.ask("GET", f"/v1/plans/{plan_id}")))
    answer = subprocess.run(
        [sys.executable, "-m", "executor.launcher", str(path), "--steps", str(step_count),
         "--json"],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
        timeout=LIMIT_SECONDS, check=True,
    )  # fmt: skip
    return tuple(json.loads(answer.stdout)["losses"])
