"""Runs: asked for, followed, started again, replanned, cancelled, measured."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import text

from api.caller import DEFAULT_PROJECT
from api.repositories.plans import PlanRepository
from api.services.records import plan_row
from planner.importers.measured_runs import read_measured_runs
from tests.contract.api.agents_at_work import (
    AT_WORK,
    NEEDS_ALL,
    QUIET,
    AgentAtWork,
    a_gang_plan,
    a_row,
    a_run,
    age,
    launch,
    leased,
    pass_time,
    running,
    state_of,
    sweeper_of,
    two_agents,
)
from tests.contract.api.solvers import a_planner, an_infeasible, plan_forever
from tests.contract.api.solving import ended

APPLICATION = AT_WORK


def run_of(client, run_id):
    return client.get(f"/v1/runs/{run_id}").json()


def history(client, run_id):
    return client.get(f"/v1/runs/{run_id}/history").json()["items"]


def states(client, run_id):
    return [event["state"] for event in history(client, run_id) if event["kind"] == "state"]


def replanned(client, run_id):
    """Sweep until the solve for what is left has been written down and taken up."""
    sweeper = sweeper_of(client)
    sweeper.sweep()
    operation_id = run_of(client, run_id)["operation_id"]
    if operation_id is not None:
        ended(client, operation_id)
        sweeper.sweep()
    return run_of(client, run_id)


def lose_second_node(client, first):
    """Have the second agent fall silent, and the first stop as it is told."""
    pass_time(client, 61, but=(first,))
    assert first.beat("running").json()["stop"]
    assert first.result("stopped").status_code == 200


def test_a_run_that_all_agents_end_well_has_succeeded(client):
    run_id, first, second = running(client)

    first.result("succeeded", report={"status": "completed"})
    assert state_of(client, run_id) == "running"
    second.result("succeeded")

    run = run_of(client, run_id)
    assert (run["state"], run["reason"], run["restart_count"]) == ("succeeded", None, 0)
    assert states(client, run_id) == ["queued", "starting", "running", "succeeded"]
    assert client.get(f"/v1/runs/{run_id}/result").json()["report"] == {"status": "completed"}


def test_runs_are_listed_newest_first_in_pages(client):
    plan_id = a_gang_plan(client)
    made = [a_run(client, plan_id) for _ in range(3)]

    page = client.get("/v1/runs?limit=2").json()
    rest = client.get(f"/v1/runs?limit=2&cursor={page['next_cursor']}").json()

    assert [run["id"] for run in page["items"]] == [made[2], made[1]]
    assert [run["id"] for run in rest["items"]] == [made[0]]
    assert rest["next_cursor"] is None
    assert client.get("/v1/runs?state=running").json()["items"] == []
    assert len(client.get(f"/v1/runs?plan_id={plan_id}").json()["items"]) == 3


def test_a_key_stands_for_one_run(client):
    request = {"plan_id": a_gang_plan(client)}
    key = {"Idempotency-Key": "k1"}

    first = client.post("/v1/runs", json=request, headers=key).json()
    again = client.post("/v1/runs", json=request, headers=key).json()
    other = client.post("/v1/runs", json={**request, "restart_limit": 9}, headers=key)

    assert first["id"] == again["id"]
    assert other.status_code == 422
    assert len(client.get("/v1/runs").json()["items"]) == 1


def test_a_plan_that_does_not_exist_is_not_run(client):
    assert client.post("/v1/runs", json={"plan_id": "plan-none"}).status_code == 404


def test_an_infeasible_answer_is_not_run(client):
    answer = an_infeasible()
    with client.app.state.database.writing() as session:
        PlanRepository(session, DEFAULT_PROJECT).add(plan_row(answer, request_digest="d"))

    refused = client.post("/v1/runs", json={"plan_id": answer.id})

    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "plan_id"


def test_a_failed_rank_has_the_gang_started_again_from_its_checkpoint(client):
    """The newest is told with the result: no heartbeat came after it."""
    run_id, first, second = running(client)
    first.beat("running", progress={"step": 12, "checkpoint_step": 10})

    second.result("failed", reason="CUDA error", failed_rank=5, exit_code=1, checkpoint_step=11)
    assert first.beat("running").json()["stop"]
    assert not first.beat("running").json()["cancel_requested"]
    assert state_of(client, run_id) == "stopping"
    assert second.poll().status_code == 204
    first.result("stopped")
    first.poll()
    second.poll()

    assert (first.lease["epoch"], second.lease["epoch"]) == (2, 2)
    assert first.lease["resume"]
    run = run_of(client, run_id)
    assert (run["restart_count"], run["attempt"], run["checkpoint_step"]) == (1, 2, 11)
    told = " ".join(event["text"] for event in history(client, run_id))
    assert "rank 5: CUDA error" in told
    assert "from the checkpoint of step 11" in told


def test_how_a_node_ended_stands_once_in_the_history(client):
    run_id, first, second = running(client)

    second.result("failed", reason="CUDA error", failed_rank=5, exit_code=1)
    first.result("stopped")

    told = [event["text"] for event in history(client, run_id)]
    assert len([text for text in told if "CUDA error" in text]) == 1
    assert "attempt 1 ends on all of its nodes" in told


def test_a_run_that_fails_too_often_has_failed_with_the_reason(client):
    run_id, first, second = running(client, restart_limit=1)
    for _ in range(2):
        second.result("failed", reason="CUDA error")
        first.result("failed", reason="connection reset")
        first.poll()
        second.poll()

    run = run_of(client, run_id)
    assert (run["state"], run["restart_count"]) == ("failed", 1)
    assert "CUDA error" in run["reason"]
    assert "limit" in run["reason"]


def test_ranks_that_fail_as_others_are_stopped_count_once(client):
    run_id, first, second = running(client)

    second.result("failed", reason="killed")
    first.result("failed", reason="connection reset by peer")

    assert run_of(client, run_id)["restart_count"] == 1


def test_a_lost_node_has_the_run_replanned_for_what_is_left(client):
    run_id, first, _ = running(client)
    first.beat("running", progress={"step": 30, "checkpoint_step": 20})
    old_plan = run_of(client, run_id)["plan_id"]

    lose_second_node(client, first)
    assert state_of(client, run_id) == "replanning"
    run = replanned(client, run_id)

    sweeper_of(client).sweep()
    first.poll()
    assert first.lease["epoch"] == 2
    assert first.lease["resume"]
    assert (first.lease["ranks"], first.lease["node_count"]) == ([0, 1, 2, 3], 1)
    assert first.lease["checkpoint_folder"] == run_id
    assert run["first_plan_id"] == old_plan != run["plan_id"] == first.lease["plan"]["id"]
    change = next(e["change"] for e in history(client, run_id) if e["kind"] == "replanned")
    assert (change["old_device_count"], change["new_device_count"]) == (8, 4)
    assert (change["old_step_seconds"], change["new_step_seconds"]) == (1.0, 2.0)
    assert (change["step_seconds_ratio"], change["resumed_from_step"]) == (2.0, 20)
    assert change["lost_agents"] == ["node-b"]
    assert change["old_strategy"] != change["new_strategy"]


def test_the_new_plan_is_for_the_same_model_and_job(client):
    run_id, first, _ = running(client)
    before = first.lease["plan"]

    lose_second_node(client, first)
    replanned(client, run_id)
    sweeper_of(client).sweep()
    after = first.poll().json()["plan"]

    assert after["model"]["resolved"] == before["model"]["resolved"]
    assert after["job"]["resolved"] == before["job"]["resolved"]
    assert after["cluster"]["resolved"]["node_groups"][0]["node_count"] == 1


def test_a_lost_node_is_replaced_by_an_idle_one_under_the_same_plan(client):
    run_id, first, second = running(client)
    spare = AgentAtWork.enrolled(client, "node-c")
    age(client, 61)
    spare.poll(0)
    first.beat("running")
    sweeper_of(client).sweep()
    first.result("stopped")

    replanned(client, run_id)
    sweeper_of(client).sweep()

    run = run_of(client, run_id)
    assert run["plan_id"] == run["first_plan_id"]
    assert [lease["agent_name"] for lease in run["leases"]] == ["node-a", "node-c"]
    assert second.beat("running").status_code == 409


def test_a_run_that_fits_nothing_that_is_left_has_failed_with_the_reason(client):
    agents = two_agents(client)
    run_id = a_run(client, a_gang_plan(client, global_batch_size=NEEDS_ALL))
    first, _second = agents
    for agent in agents:
        agent.poll()
    for agent in agents:
        agent.beat("ready")

    lose_second_node(client, first)
    run = replanned(client, run_id)

    assert run["state"] == "failed"
    assert "likely enough to fit what is left: tensor parallel 8: activations" in run["reason"]


def test_a_run_without_replan_waits_for_its_agents(client):
    run_id, first, second = running(client, replan=False)

    lose_second_node(client, first)
    pass_time(client, 1000, but=(first,))

    assert state_of(client, run_id) == "queued"
    first.poll()
    second.poll()
    assert state_of(client, run_id) == "starting"


def test_a_run_grows_back_when_its_lost_node_is_idle_again(client):
    run_id, first, second = running(client)
    lose_second_node(client, first)
    assert first.poll().status_code == 204
    replanned(client, run_id)
    first.poll()
    launch(first)
    first.beat("running", progress={"step": 40, "checkpoint_step": 30})

    second.poll()
    pass_time(client, 599, but=(first, second))
    assert state_of(client, run_id) == "running"  # the lease was offered a moment ago
    age(client, 601)
    first.beat("running")
    second.poll()
    sweeper_of(client).sweep()

    assert first.beat("running").json()["stop"]
    first.result("stopped")
    assert (first.poll().status_code, second.poll().status_code) == (200, 200)
    run = run_of(client, run_id)
    assert run["plan_id"] == run["first_plan_id"]
    assert (run["restart_count"], run["checkpoint_step"]) == (1, 30)
    assert [len(lease["ranks"]) for lease in run["leases"]] == [4, 4]
    change = [e["change"] for e in history(client, run_id) if e["kind"] == "replanned"][-1]
    assert (change["old_device_count"], change["new_device_count"]) == (4, 8)


@pytest.mark.parametrize("hindrance", ["no checkpoint", "another run waits"])
def test_a_run_does_not_grow_at_others_cost_or_its_own(client, hindrance):
    run_id, first, second = running(client)
    lose_second_node(client, first)
    assert first.poll().status_code == 204
    replanned(client, run_id)
    first.poll()
    launch(first)
    if hindrance != "no checkpoint":
        first.beat("running", progress={"step": 40, "checkpoint_step": 30})
        a_run(client)
    age(client, 601)
    first.beat("running")
    second.poll()

    sweeper_of(client).sweep()

    assert state_of(client, run_id) == "running"


def test_an_agent_that_comes_back_is_used_again(client):
    run_id, first, second = running(client)
    lose_second_node(client, first)
    replanned(client, run_id)
    sweeper_of(client).sweep()
    first.poll()

    assert second.poll().status_code == 204
    other = a_run(client, run_of(client, run_id)["plan_id"])

    assert [lease["agent_name"] for lease in run_of(client, other)["leases"]] == ["node-b"]


def test_a_run_whose_agents_are_all_lost_waits_until_some_are_there(client):
    run_id, first, _ = running(client)
    pass_time(client, 61)
    replanned(client, run_id)
    assert state_of(client, run_id) == "queued"

    first.poll()
    sweeper_of(client).sweep()
    assert state_of(client, run_id) == "queued"
    pass_time(client, 61, but=(first,))
    run = replanned(client, run_id)

    assert "stayed away for 60 s" in " ".join(e["text"] for e in history(client, run_id))
    assert run["plan_id"] != run["first_plan_id"]


def test_a_solve_that_died_with_its_service_is_asked_again(make_client):
    with make_client(planner=a_planner(plan=plan_forever), **QUIET) as client:
        run_id, first, _ = running(client)
        lose_second_node(client, first)
        sweeper_of(client).sweep()
        operation_id = run_of(client, run_id)["operation_id"]
        assert operation_id is not None
    with make_client(**AT_WORK) as client:
        sweeper_of(client).sweep()

        run = replanned(client, run_id)

        assert run["plan_id"] != run["first_plan_id"]


def test_an_agent_that_goes_on_purpose_costs_no_restart(client):
    run_id, first, second = running(client, restart_limit=0)

    second.result("stopped", reason="the agent is being upgraded")
    first.result("failed", reason="connection reset")

    run = run_of(client, run_id)
    assert (run["state"], run["restart_count"]) == ("queued", 0)
    first.poll()
    assert state_of(client, run_id) == "queued"
    second.poll()
    assert state_of(client, run_id) == "starting"


def test_a_queued_run_is_cancelled_at_once(client):
    run_id = a_run(client)

    answer = client.post(f"/v1/runs/{run_id}/cancel")

    assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    assert client.post(f"/v1/runs/{run_id}/cancel").status_code == 200
    two_agents(client)
    assert state_of(client, run_id) == "cancelled"


def test_a_running_run_is_cancelled_when_all_agents_have_stopped(client):
    run_id, first, second = running(client)

    assert client.post(f"/v1/runs/{run_id}/cancel").json()["state"] == "stopping"
    told = [agent.beat("running").json() for agent in (first, second)]
    assert all(answer["stop"] and answer["cancel_requested"] for answer in told)
    first.result("stopped")
    assert state_of(client, run_id) == "stopping"
    second.result("stopped")

    run = run_of(client, run_id)
    assert (run["state"], run["reason"]) == ("cancelled", "it was cancelled")
    assert run["finished_at"] is not None


def test_a_cancelled_run_whose_agent_is_dead_ends_with_its_lease(client):
    run_id, first, _ = running(client)
    client.post(f"/v1/runs/{run_id}/cancel")
    first.result("stopped")

    pass_time(client, 61)

    assert state_of(client, run_id) == "cancelled"


def test_a_replanning_run_is_cancelled_at_once(client):
    run_id, first, _ = running(client)
    lose_second_node(client, first)
    assert state_of(client, run_id) == "replanning"

    assert client.post(f"/v1/runs/{run_id}/cancel").json()["state"] == "cancelled"
    sweeper_of(client).sweep()

    assert state_of(client, run_id) == "cancelled"


def test_a_run_that_has_ended_is_not_cancelled(client):
    run_id, first, second = running(client)
    first.result("succeeded")
    second.result("succeeded")

    answer = client.post(f"/v1/runs/{run_id}/cancel")

    assert answer.status_code == 409
    assert answer.json()["type"].endswith("already-finished")


def test_a_run_of_another_project_does_not_exist(client, database):
    run_id, first, _ = running(client)
    first.metrics(0, 1, 2, 3)
    with database.engine.begin() as connection:
        other = "INSERT INTO projects (id, created_at) SELECT 'other', created_at FROM projects"
        connection.execute(text(other))
        connection.execute(text("UPDATE runs SET project_id = 'other'"))

    for path in ("", "/history", "/metrics", "/logs", "/result", "/measured", "/events"):
        assert client.get(f"/v1/runs/{run_id}{path}").status_code == 404
    assert client.get("/v1/fleet").json() == {"groups": []}
    assert client.post(f"/v1/runs/{run_id}/cancel").status_code == 404


def test_metrics_stand_beside_what_was_predicted(client):
    run_id, first, second = running(client)
    first.metrics(0, 1, 2, 3)
    second.metrics(0, 1, 2, 3)

    metrics = client.get(f"/v1/runs/{run_id}/metrics").json()

    (predicted,) = metrics["predicted"]
    assert predicted["step_seconds"] == {"p10": 0.9, "p50": 1.0, "p90": 1.1}
    assert predicted["tokens_per_second"] == 8 * 256.0
    assert len(predicted["peak_memory_bytes"]) == 8
    measured = metrics["measured"]
    assert (measured["step_count"], measured["median_step_seconds"]) == (3, 1.5)
    assert measured["step_seconds_ratio"] == 1.5
    assert measured["peak_memory_bytes"][0] == 10_000_000_000
    assert measured["last_loss"] == pytest.approx(3.7)
    assert [(row["rank"], row["step"]) for row in metrics["items"]] == [
        (rank, step) for rank in (0, 4) for step in (1, 2, 3)
    ]


def test_a_fleet_holds_its_runs_against_their_predictions(client):
    """1.5 s measured where 1 s was predicted, 0.9 to 1.1 s; one run of one is no drift."""
    run_id, first, second = running(client)
    assert client.get("/v1/fleet").json() == {"groups": []}
    for agent in (first, second):
        agent.metrics(0, 1, 2, 3)

    (group,) = client.get("/v1/fleet").json()["groups"]

    assert (group["has_drifted"], group["recent_count"], group["outside_count"]) == (False, 1, 1)
    assert group["chance"] == pytest.approx(0.2)
    assert group["lessons"] is None
    (run,) = group["runs"]
    assert (run["run_id"], run["measured_seconds"], run["predicted_seconds"]) == (run_id, 1.5, 1.0)
    assert (run["low_ratio"], run["ratio"], run["high_ratio"]) == (0.9, 1.5, 1.1)
    assert run["is_outside"]


def test_a_reader_of_metrics_misses_none_and_sees_none_twice(client):
    run_id, first, second = running(client)
    seen, cursor = [], ""

    def read(limit):
        nonlocal cursor
        query = f"?limit={limit}" + (f"&cursor={cursor}" if cursor else "")
        page = client.get(f"/v1/runs/{run_id}/metrics{query}").json()
        cursor = page["next_cursor"]
        seen.extend((row["attempt"], row["rank"], row["step"]) for row in page["items"])

    first.metrics(0, 1, 2)
    read(1)
    second.metrics(0, 1, 2)
    read(2)
    first.metrics(2, 3)
    first.result("failed")
    second.result("stopped")
    for agent in (first, second):
        agent.poll()
    first.metrics(0, 3)
    for _ in range(4):
        read(2)

    assert sorted(seen) == [
        *((1, 0, 1), (1, 0, 2), (1, 0, 3), (1, 4, 1), (1, 4, 2)),
        (2, 0, 3),
    ]
    answer = client.get(f"/v1/runs/{run_id}/metrics?cursor=nonsense")
    assert answer.status_code == 422


def test_measured_steps_can_be_read_by_validation(client, tmp_path):
    run_id, first, _ = running(client)
    first.metrics(0, 1, 2, 3, 4)

    answer = client.get(f"/v1/runs/{run_id}/measured")

    assert answer.headers["content-type"].startswith("application/x-ndjson")
    path = tmp_path / "runs.jsonl"
    path.write_text(answer.text, encoding="utf-8")
    (row,) = read_measured_runs(path)
    assert (row.gpu, row.num_gpus, row.step_time_s) == ("h100-sxm5-80gb", 8, 1.5)
    assert (row.tp, row.pp, row.dp, row.zero_stage, row.gbs) == (2, 2, 2, 1, 16)
    assert (row.layers, row.hidden_size, row.seq_len) == (4, 64, 128)


def test_events_are_streamed_until_the_run_ends(client):
    run_id, first, second = running(client)
    first.result("succeeded")
    second.result("succeeded")

    with client.stream("GET", f"/v1/runs/{run_id}/events") as stream:
        lines = list(stream.iter_lines())
    events = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    data = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]

    assert set(events) == {"history", "progress"}
    assert data[-1]["state"] == "succeeded"
    with client.stream(
        "GET", f"/v1/runs/{run_id}/events", headers={"Last-Event-ID": "5"}
    ) as stream:
        ids = [line for line in stream.iter_lines() if line.startswith("id: ")]
    assert ids[0] == "id: 6"


def test_what_cannot_be_written_is_refused_with_503_and_leaves_no_half_state(client, database):
    """The database goes away for metrics in the middle of their transaction."""
    run_id, first, _ = running(client)
    first.metrics(0, 1)
    with database.engine.begin() as connection:
        connection.execute(text("ALTER TABLE lease_metrics RENAME TO away"))

    refused = first.metrics(1, 2, 3)

    assert refused.status_code == 503
    assert refused.json()["type"].endswith("database-unavailable")
    with database.engine.begin() as connection:
        connection.execute(text("ALTER TABLE away RENAME TO lease_metrics"))
    assert first.metrics(1, 2, 3).json() == {"acknowledged_sequence": 3}
    items = client.get(f"/v1/runs/{run_id}/metrics").json()["items"]
    assert [row["step"] for row in items] == [1, 2, 3]


def test_who_may_not_run_may_not_run(make_client):
    with make_client(anonymous_scopes=("read", "plan"), **AT_WORK) as client:
        request = {"plan_id": a_gang_plan(client)}

        assert client.post("/v1/runs", json=request).status_code in {401, 403}
        assert client.post("/v1/enrolment-tokens", json={}).status_code in {401, 403}
        assert client.get("/v1/runs").status_code == 200


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"command": "rm -rf /"}, "command"),
        ({"restart_limit": -1}, "restart_limit"),
        ({"arguments": {"a": [1]}}, "arguments"),
        ({"shell": "true"}, "shell"),
    ],
)
def test_a_bad_request_names_its_field(client, changes, field):
    answer = client.post("/v1/runs", json={"plan_id": "plan-x", **changes})

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].startswith(field)


def test_a_row_of_metrics_without_a_finite_loss_has_none(client):
    run_id, first, _ = running(client)

    assert first.metrics(0, rows=[a_row(1, loss=None)]).status_code == 200
    assert client.get(f"/v1/runs/{run_id}/metrics").json()["items"][0]["loss"] is None


def test_a_cancelled_run_that_was_only_offered_stops_its_agents(client):
    run_id, first, second = leased(client)
    client.post(f"/v1/runs/{run_id}/cancel")

    assert first.beat("preparing").json()["stop"]
    first.result("stopped")
    second.result("stopped")

    assert state_of(client, run_id) == "cancelled"


def test_a_run_stands_beside_its_prediction_on_the_page_of_the_fleet(client):
    """Steps of 1.5 s where 0.9 to 1.1 were predicted; what measured two steps says nothing yet."""
    run_id, first, _ = running(client)
    first.metrics(0, 1, 2)
    assert "No measured runs yet" in client.get("/fleet").text

    first.metrics(2, 3, 4)
    text = client.get("/fleet").text

    assert "The only run is outside its predicted interval." in text
    assert f'href="/runs/{run_id}"' in text
    assert ">1.50 <" in text
