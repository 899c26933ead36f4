"""Real training on two agents: to its end, and on after one of them is gone for good."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.schema.lifecycle import FINAL_LEASE_STATES
from tests.chaos.fleet import Fleet
from tests.chaos.rounds import TWO_NODES, settle
from tests.chaos.server import ASK_SECONDS, Tempo, wait_until

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(1800)]

LIMIT_SECONDS = 900.0
TEMPO = Tempo(heartbeat=1.0, lease=6.0, poll=2.0, acknowledge=8.0, replan_after=1.0)
STEP_COUNT = 12
# Losses in fp32 of one run in two layouts: sums in another order, over some tens of steps.
RELATIVE_TOLERANCE = 1e-4
ONE_RANK_EACH = {
    **TWO_NODES,
    "cluster": {
        "name": "pair",
        "node_groups": [
            {"name": "cpu", "device": "cpu-gloo", "node_count": 2, "devices_per_node": 1}
        ],
    },
}
SCRIPT = Path(__file__).with_name("held_training.py")


def commands(hold: Path) -> str:
    """The shipped training, also one that waits for its later batches while `hold` is there."""
    return f"""
[commands.train]
argv = ["{{launcher}}", "--steps", "{{steps}}"]
[commands.train.arguments]
steps = {{ default = 20, pattern = "[0-9]+" }}

[commands.absent]
argv = ["{{launcher}}", "--", "{hold}.py"]

[commands.held]
argv = ["{{launcher}}", "--", "{SCRIPT}", "{hold}"]
environment = {{ MESHWRIGHT_CHECKPOINT_STEPS = "5", MESHWRIGHT_STEPS = "{STEP_COUNT}" }}
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A server and two agents of two ranks each."""
    found = Fleet(tmp_path_factory.mktemp("fleet"), tempo=TEMPO)
    try:
        found.start(commands(hold(found)), node_count=2)
        yield found
    finally:
        found.close()


def hold(fleet: Fleet) -> Path:
    """Where a file keeps held training from its later batches."""
    return fleet.folder / "hold"


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


@pytest.fixture(scope="module", name="undisturbed")
def _undisturbed(fleet: Fleet) -> dict[str, Any]:
    """A run of all steps that nothing befell."""
    arguments = {"steps": STEP_COUNT}
    run_id = fleet.run(fleet.plan(ONE_RANK_EACH), command="train", arguments=arguments)
    return fleet.wait_for(run_id, set(), LIMIT_SECONDS)


def test_two_agents_train_one_plan_to_its_end(fleet: Fleet, undisturbed: dict[str, Any]) -> None:
    run, run_id = undisturbed, undisturbed["id"]
    assert run["state"] == "succeeded", run
    assert [lease["ranks"] for lease in run["leases"]] == [[0], [1]]
    rows = measured(fleet, run_id)
    assert {row["rank"] for row in rows} == {0, 1}
    of_step = {step: [row for row in rows if row["step"] == step] for step in range(STEP_COUNT + 2)}
    first, last = ([row["loss"] for row in of_step[step]] for step in (1, STEP_COUNT))
    assert len(first) == len(last) == 2
    assert max(last) < min(first) - 0.1
    assert all(row["peak_memory_bytes"] for row in of_step[STEP_COUNT + 1])
    log = fleet.server.ask("GET", f"/v1/runs/{run_id}/logs?node=0")
    assert f"step  {STEP_COUNT}/{STEP_COUNT}  loss" in log["text"]


def test_what_would_be_refused_again_is_not_started_again(fleet: Fleet) -> None:
    """Both nodes lack the script; a fault of a rank is tried up to `restart_limit` times."""
    run_id = fleet.run(fleet.plan(ONE_RANK_EACH), command="absent")
    run = fleet.wait_for(run_id, set(), LIMIT_SECONDS)
    assert (run["state"], run["attempt"]) == ("failed", 1), run
    assert "script: is not a file" in run["reason"]


def has_trained(fleet: Fleet, run_id: str) -> bool:
    """Whether the server has a row of the run."""
    return bool(fleet.server.ask("GET", f"/v1/runs/{run_id}/metrics?limit=1")["items"])


@pytest.mark.full
def test_a_run_that_is_cancelled_saves_where_it_is(fleet: Fleet) -> None:
    """The ranks of both nodes leave off after one and the same step.

    On one node it is `tests/distributed/test_termination.py` that shows it.
    """
    settle(fleet)
    steps = {"steps": 100_000}
    run_id = fleet.run(fleet.plan(ONE_RANK_EACH), command="train", arguments=steps)
    wait_until(
        lambda: has_trained(fleet, run_id), LIMIT_SECONDS, "no step", look_seconds=ASK_SECONDS
    )
    fleet.server.ask("POST", f"/v1/runs/{run_id}/cancel")
    run = fleet.wait_for(run_id, set(), LIMIT_SECONDS)
    assert run["state"] == "cancelled", run
    assert 1 <= saved_step(fleet, run_id) < 100_000


def test_what_is_left_goes_on_from_the_checkpoint_when_a_node_is_gone_for_good(
    fleet: Fleet, undisturbed: dict[str, Any]
) -> None:
    """Two agents of two ranks; the loss goes on as if nothing had befallen, in any layout."""
    expected = {row["step"]: row["loss"] for row in measured(fleet, undisturbed["id"])}
    settle(fleet)
    hold(fleet).touch()
    run_id = fleet.run(fleet.plan(TWO_NODES), command="held", restart_limit=3)
    wait_until(lambda: saved_step(fleet, run_id) >= 5, LIMIT_SECONDS, "no checkpoint")
    wait_until(
        lambda: {row["rank"] for row in measured(fleet, run_id)} == {0, 1, 2, 3},
        LIMIT_SECONDS,
        "no rows of all ranks",
        look_seconds=ASK_SECONDS,
    )
    leases = fleet.state(run_id)["leases"]
    live = [item["ranks"] for item in leases if item["state"] not in FINAL_LEASE_STATES]
    assert live == [[0, 1], [2, 3]]
    fleet.nodes[1].die()
    hold(fleet).unlink()
    run = fleet.wait_for(run_id, set(), LIMIT_SECONDS)
    assert run["state"] == "succeeded", run
    history = fleet.server.ask("GET", f"/v1/runs/{run_id}/history")["items"]
    (change,) = [item["change"] for item in history if item["kind"] == "replanned"]
    assert change["lost_agents"] == ["node-1"]
    assert (change["old_device_count"], change["new_device_count"]) == (4, 2)
    assert change["resumed_from_step"] >= 5
    rows = [row for row in measured(fleet, run_id) if row["rank"] == 0]
    last = max(row["attempt"] for row in rows)  # a slow start may cost one before
    resumed = min(row["step"] for row in rows if row["attempt"] == last)
    assert resumed > 5
    assert {row["step"] for row in rows} >= {resumed, STEP_COUNT}
    for row in rows:
        if row["step"] <= STEP_COUNT:
            loss = expected[row["step"]]
            assert row["loss"] == pytest.approx(loss, rel=RELATIVE_TOLERANCE), row
