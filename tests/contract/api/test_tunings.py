"""Tunings: trials run by agents, what they measured learnt from, until the measured certificate."""

from __future__ import annotations

from datetime import timedelta

import pytest

from api.repositories.runs import RunRepository
from planner.schema.plan import Plan
from planner.schema.tuning import Tuning
from tests.contract.api.agents_at_work import AT_WORK, a_gang_plan, pass_time, state_of, two_agents
from tests.contract.api.callers import a_key, bearer
from tests.contract.api.tunings_at_work import (
    OUT_OF_MEMORY,
    a_tuning,
    a_tuning_request,
    fail,
    launched,
    measure,
    searched,
    trials_of,
    tuning_of,
    went_on,
)

APPLICATION = AT_WORK


def run_of(client, tuning_id):
    return tuning_of(client, tuning_id)["under_way"]["run_id"]


def outcomes(client, tuning_id):
    return [trial["outcome"] for trial in tuning_of(client, tuning_id)["tuning"]["trials"]]


def test_a_tuning_measures_on_agents_and_ends_with_a_certificate_and_its_best_plan(client):
    agents = two_agents(client)
    tuning_id = a_tuning(client, runs=2)

    first = tuning_of(client, tuning_id)["under_way"]
    measure(client, *agents, seconds=1.5)
    second = tuning_of(client, tuning_id)["under_way"]
    measure(client, *agents, seconds=1.2)

    found = tuning_of(client, tuning_id)
    assert (found["state"], found["under_way"], found["problem"]) == ("succeeded", None, None)
    assert (found["trial_count"], found["best_seconds"], found["faster_ratio"]) == (2, 1.2, 0.02)
    tuning = Tuning.model_validate(found["tuning"])
    assert [trial.step_seconds for trial in tuning.trials] == [(1.5, 1.5), (1.2, 1.2)]
    assert [trial.run_id for trial in tuning.trials] == [first["run_id"], second["run_id"]]
    assert tuning.trials[0].peak_memory_bytes == 10_000_000_000
    assert [trial.optimistic_seconds for trial in tuning.trials] == [0.5, 0.6]
    assert second["optimistic_seconds"] == 0.6
    assert tuning.certificate.best_trial == 2
    best = Plan.model_validate(client.get(f"/v1/plans/{found['best_plan_id']}").json())
    assert best.strategy == tuning.trials[1].strategy


def test_a_trial_runs_until_it_has_measured_enough_and_is_then_stopped(client):
    agents = two_agents(client)
    tuning_id = a_tuning(client)
    run_id = run_of(client, tuning_id)
    launched(*agents)
    for agent in agents:
        agent.metrics(0, 1, 2)

    went_on(client)
    assert not agents[0].beat("running").json()["stop"]
    for agent in agents:
        agent.metrics(2, 3)
    went_on(client)

    assert agents[0].beat("running").json()["stop"]
    assert state_of(client, run_id) == "stopping"
    assert outcomes(client, tuning_id) == []


def test_a_run_that_ends_by_itself_is_measured_by_what_it_did(client):
    agents = two_agents(client)
    tuning_id = a_tuning(client)
    launched(*agents)
    for agent in agents:
        agent.metrics(0, 1, 2)
        agent.result("succeeded")
    went_on(client)

    (trial,) = tuning_of(client, tuning_id)["tuning"]["trials"]
    assert (trial["outcome"], trial["step_seconds"]) == ("measured", [1.5])


def test_a_clock_that_is_set_forward_while_a_trial_runs_spends_no_minutes(client):
    """The database has its start an hour before it was."""
    agents = two_agents(client)
    tuning_id = a_tuning(client)
    with client.app.state.database.writing() as session:
        run = RunRepository(session).locked(run_of(client, tuning_id))
        run.started_at -= timedelta(hours=1)
    measure(client, *agents, seconds=1.5)

    (trial,) = tuning_of(client, tuning_id)["tuning"]["trials"]
    assert 0.0 < trial["run_seconds"] < 3000.0


def test_a_run_without_a_timed_step_has_failed(client):
    agents = two_agents(client)
    tuning_id = a_tuning(client)
    launched(*agents)
    for agent in agents:
        agent.result("succeeded")
    went_on(client)

    (trial,) = tuning_of(client, tuning_id)["tuning"]["trials"]
    assert (trial["outcome"], trial["reason"]) == ("failed", "it reported no step after its first")


def test_memory_that_runs_out_is_a_measurement_and_a_crash_is_kept_with_its_log(client):
    agents = two_agents(client)
    tuning_id = a_tuning(client, runs=3)
    fail(client, *agents, reason=OUT_OF_MEMORY)
    crashed = run_of(client, tuning_id)
    launched(*agents)
    agents[0].log(0, "Traceback: KeyError\n")
    agents[0].result("failed", reason="KeyError", failed_rank=0, exit_code=1)
    agents[1].result("stopped")
    went_on(client)
    measure(client, *agents, seconds=1.0)

    found = tuning_of(client, tuning_id)
    assert outcomes(client, tuning_id) == ["out_of_memory", "failed", "measured"]
    trials = found["tuning"]["trials"]
    assert trials[0]["reason"].endswith(f"failed: rank 0: {OUT_OF_MEMORY}")
    assert trials[1]["log"] == f"/v1/runs/{crashed}/logs"
    node = agents[0].lease["node_rank"]
    assert "KeyError" in client.get(trials[1]["log"], params={"node": node}).json()["text"]
    certificate = found["tuning"]["certificate"]
    assert (certificate["out_of_memory_count"], certificate["failed_count"]) == (1, 1)
    assert (found["state"], certificate["best_trial"]) == ("succeeded", 3)


def test_a_log_that_ends_for_lack_of_memory_says_so_where_the_reason_does_not(client):
    agents = two_agents(client)
    tuning_id = a_tuning(client)
    launched(*agents)
    agents[0].log(0, f"step 1\n{OUT_OF_MEMORY}\n")
    agents[0].result("failed", reason="ended with exit status 1", exit_code=1)
    agents[1].result("stopped")
    went_on(client)

    assert outcomes(client, tuning_id) == ["out_of_memory"]


def test_an_agent_that_is_lost_fails_its_trial_and_the_next_runs_once_it_is_back(client):
    agents = two_agents(client)
    tuning_id = a_tuning(client)
    launched(*agents)
    pass_time(client, 61, but=agents[:1])
    agents[0].result("stopped")
    went_on(client)

    (trial,) = tuning_of(client, tuning_id)["tuning"]["trials"]
    assert (trial["outcome"], tuning_of(client, tuning_id)["state"]) == ("failed", "running")
    assert "nothing was heard of the agent for 60 s" in trial["reason"]
    measure(client, *agents, seconds=1.0)
    assert outcomes(client, tuning_id) == ["failed", "measured"]
    assert tuning_of(client, tuning_id)["tuning"]["certificate"]["best_trial"] == 2


def test_a_tuning_whose_first_trials_all_fail_ends_and_can_be_resumed(client):
    agents = two_agents(client)
    tuning_id = a_tuning(client, runs=4)
    for _ in range(3):
        fail(client, *agents, reason="no such file: train.py")

    found = tuning_of(client, tuning_id)
    assert (found["state"], found["trial_count"], found["under_way"]) == ("failed", 3, None)
    assert "the first 3 trials failed" in found["problem"]["detail"]
    assert found["problem"]["errors"][0]["remedy"].endswith("and resume the tuning")

    resumed = client.post(f"/v1/tunings/{tuning_id}/resume").json()
    assert (resumed["state"], resumed["problem"]) == ("running", None)
    searched(client)
    measure(client, *agents, seconds=1.0)

    assert outcomes(client, tuning_id) == ["failed"] * 3 + ["measured"]
    assert tuning_of(client, tuning_id)["state"] == "succeeded"


def test_a_cancelled_tuning_stops_its_trial_and_tries_it_again_when_resumed(client):
    agents = two_agents(client)
    tuning_id = a_tuning(client)
    run_id = run_of(client, tuning_id)
    launched(*agents)

    cancelled = client.post(f"/v1/tunings/{tuning_id}/cancel").json()
    again = client.post(f"/v1/tunings/{tuning_id}/cancel").json()
    for agent in agents:
        assert agent.beat("running").json()["cancel_requested"]
        agent.result("stopped")

    assert (cancelled["state"], cancelled["under_way"]) == ("cancelled", None)
    assert again == cancelled
    assert state_of(client, run_id) == "cancelled"
    client.post(f"/v1/tunings/{tuning_id}/resume")
    searched(client)
    resumed = tuning_of(client, tuning_id)
    assert (resumed["under_way"]["number"], resumed["trial_count"]) == (1, 0)
    assert resumed["under_way"]["run_id"] != run_id


def test_a_tuning_at_its_end_is_neither_cancelled_nor_resumed(client):
    agents = two_agents(client)
    tuning_id = a_tuning(client, runs=1)
    measure(client, *agents, seconds=1.0)

    for move in ("cancel", "resume"):
        refused = client.post(f"/v1/tunings/{tuning_id}/{move}")
        assert refused.status_code == 409
        assert "is succeeded" in refused.json()["detail"]


def test_what_the_search_refuses_ends_the_tuning_with_the_problem(client):
    tuning_id = a_tuning(client, job={"global_batch_size": 19, "sequence_length": 128})

    found = tuning_of(client, tuning_id)
    assert found["state"] == "failed"
    assert found["problem"]["errors"][0]["field"] == "job.global_batch_size"


def test_a_service_that_starts_again_goes_on_with_a_trial_from_the_database(make_client):
    with make_client(**AT_WORK) as client:
        agents = two_agents(client)
        tuning_id = a_tuning(client, runs=1)
    with make_client(**AT_WORK) as client:
        for agent in agents:
            agent.client = client
        measure(client, *agents, seconds=1.0)

        assert tuning_of(client, tuning_id)["state"] == "succeeded"


def test_a_service_that_starts_again_looks_anew_for_what_another_was_looking_for(make_client):
    endless = {"global_batch_size": 17, "sequence_length": 128}
    with make_client(**AT_WORK) as client:
        begun = client.post("/v1/tunings", json=a_tuning_request(job=endless)).json()
        assert trials_of(client).recorded()
    with make_client(**AT_WORK) as client:
        assert tuning_of(client, begun["id"])["state"] == "running"
        assert not trials_of(client).recorded()
        trials_of(client).advance_all()
        assert trials_of(client).recorded()


def test_a_search_that_nobody_renews_is_begun_again_and_what_is_renewed_is_not(client):
    """What came of it late changes nothing: it has another's token."""
    endless = {"global_batch_size": 17, "sequence_length": 128}
    begun = client.post("/v1/tunings", json=a_tuning_request(job=endless)).json()
    trials = trials_of(client)
    seen = trials.leases()[begun["id"]]
    trials.renew()
    trials.give_up(begun["id"], seen)
    assert trials.leases()[begun["id"]][0] == seen[0]

    trials.give_up(begun["id"], trials.leases()[begun["id"]])
    trials.advance_all()

    assert trials.leases()[begun["id"]][0] != seen[0]
    client.post(f"/v1/tunings/{begun['id']}/cancel")
    trials.forget(seen[0])
    searched(client)


def test_cancelling_ends_the_search(client):
    endless = {"global_batch_size": 17, "sequence_length": 128}
    begun = client.post("/v1/tunings", json=a_tuning_request(job=endless)).json()

    client.post(f"/v1/tunings/{begun['id']}/cancel")

    searched(client)
    assert tuning_of(client, begun["id"])["state"] == "cancelled"


def test_tunings_are_listed_newest_first_in_pages(client):
    made = [a_tuning(client) for _ in range(3)]

    page = client.get("/v1/tunings?limit=2").json()
    rest = client.get(f"/v1/tunings?limit=2&cursor={page['next_cursor']}").json()

    assert [tuning["id"] for tuning in page["items"]] == [made[2], made[1]]
    assert [tuning["id"] for tuning in rest["items"]] == [made[0]]
    assert client.get("/v1/tunings?state=failed").json()["items"] == []
    line = page["items"][0]
    assert (line["model"], line["cluster"], line["run_budget"]) == ("tiny", "2x4xh100", 2)


def test_a_key_stands_for_one_tuning(client):
    key = {"Idempotency-Key": "k1"}
    first = client.post("/v1/tunings", json=a_tuning_request(), headers=key).json()
    again = client.post("/v1/tunings", json=a_tuning_request(), headers=key).json()
    other = client.post("/v1/tunings", json=a_tuning_request(runs=9), headers=key)

    assert first["id"] == again["id"]
    assert other.status_code == 422
    assert len(client.get("/v1/tunings").json()["items"]) == 1


def test_a_tuning_of_another_project_does_not_exist(client, database):
    tuning_id = a_tuning(client)
    other = bearer(a_key(database, project="team-b"))

    assert client.get(f"/v1/tunings/{tuning_id}", headers=other).status_code == 404
    assert client.post(f"/v1/tunings/{tuning_id}/cancel", headers=other).status_code == 404
    assert client.get("/v1/tunings", headers=other).json()["items"] == []


@pytest.mark.parametrize("scopes", [("read", "plan"), ("read", "run")])
def test_a_tuning_needs_the_scopes_of_plans_and_of_runs(client, database, scopes):
    key = bearer(a_key(database, *scopes))

    refused = client.post("/v1/tunings", json=a_tuning_request(), headers=key)

    assert refused.status_code == 403
    assert "needs the scope" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"model": "unknown"}, "model"),
        ({"budget": {"runs": 0}}, "budget.runs"),
        ({"budget": {"minutes": -1}}, "budget.minutes"),
        ({"budget": {"steps": 1.5}}, "budget.steps"),
        ({"command": "rm -rf"}, "command"),
        ({"runs_budget": 3}, "runs_budget"),
    ],
)
def test_a_bad_request_names_its_field(client, changes, field):
    refused = client.post("/v1/tunings", json={**a_tuning_request(), **changes})

    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == field
    assert refused.json()["errors"][0]["remedy"]


def test_a_tuning_of_what_is_not_there_does_not_exist(client):
    for method, path in (("GET", ""), ("POST", "/cancel"), ("POST", "/resume")):
        assert client.request(method, f"/v1/tunings/tuning-none{path}").status_code == 404


def test_a_tuning_begins_on_the_page_of_a_plan(client):
    two_agents(client)
    page = f"/plans/{a_gang_plan(client)}"
    token = client.get(f"{page}/runs").text.split('name="form_token" value="')[1][:64]
    typed = {"form_token": token, "arguments": "steps=3", "runs": "4", "minutes": ""}

    answer = client.post(f"{page}/tunings", data=typed, follow_redirects=False)

    assert answer.status_code == 303, answer.text
    tuning = tuning_of(client, answer.headers["location"].removeprefix("/tunings/"))
    plan = client.get(f"/v1{page}").json()
    assert tuning["tuning"]["job"]["resolved"] == plan["job"]["resolved"]
    assert tuning["arguments"] == {"steps": 3}
    assert tuning["tuning"]["budget"] == {"runs": 4, "minutes": None, "steps": 5}
    searched(client)


@pytest.mark.parametrize(
    ("typed", "told"),
    [({"runs": "0"}, "runs"), ({"minutes": "-1"}, "minutes"), ({"arguments": "x"}, "arguments")],
)
def test_what_the_page_of_a_plan_asks_of_a_tuning_is_checked(client, typed, told):
    page = f"/plans/{a_gang_plan(client)}"
    token = client.get(f"{page}/runs").text.split('name="form_token" value="')[1][:64]

    answer = client.post(f"{page}/tunings", data={"form_token": token, **typed})

    assert answer.status_code == 422
    assert told in answer.text
