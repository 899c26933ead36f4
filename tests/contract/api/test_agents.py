"""Agents enrol once, are known by their own tokens, and wait for leases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from tests.contract.api.agents_at_work import (
    AT_WORK,
    PLANNER,
    AgentAtWork,
    a_report,
    a_run,
    age,
    pass_time,
    running,
    sweeper_of,
)
from tests.contract.api.processes import until

APPLICATION = AT_WORK


def a_token(client, **changes):
    return client.post("/v1/enrolment-tokens", json=changes).json()["token"]


def enrol(client, token):
    return client.post("/v1/agents", json={**a_report(), "enrolment_token": token})


def test_an_agent_enrols_and_is_told_how_often_to_speak(client):
    answer = enrol(client, a_token(client))

    assert answer.status_code == 201
    told = answer.json()["intervals"]
    assert told["give_up_seconds"] < told["lease_seconds"]
    assert told["heartbeat_seconds"] < told["give_up_seconds"]


def test_an_enrolment_token_works_once(client):
    token = a_token(client)
    assert enrol(client, token).status_code == 201

    again = enrol(client, token)

    assert again.status_code == 401
    assert again.json()["type"].endswith("unauthenticated")
    assert len(client.get("/v1/agents").json()["items"]) == 1


def test_only_one_of_two_that_enrol_at_once_with_a_token_gets_in(client):
    token = a_token(client)

    with ThreadPoolExecutor(4) as threads:
        statuses = list(threads.map(lambda _: enrol(client, token).status_code, range(4)))

    assert sorted(statuses) == [201, 401, 401, 401]


def test_an_enrolment_token_expires(client):
    token = a_token(client, valid_seconds=1e-6)

    assert enrol(client, token).status_code == 401


def test_no_token_is_kept_as_it_is(client, database):
    enrolment_token = a_token(client)
    token = enrol(client, enrolment_token).json()["token"]

    with database.engine.connect() as connection:
        kept = [
            str(row)
            for table in ("agents", "enrolment_tokens", "audit_events")
            for row in connection.execute(text(f"SELECT * FROM {table}"))  # noqa: S608
        ]

    assert not any(secret in row for row in kept for secret in (token, enrolment_token))


def test_who_let_an_agent_in_stands_in_the_audit_log(client):
    agent = AgentAtWork.enrolled(client)
    client.delete(f"/v1/agents/{agent.agent_id}")

    actions = [event["action"] for event in client.get("/v1/audit-events").json()["items"]]

    assert actions == ["agent.revoke", "agent.enrol", "enrolment_token.create"]


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer mwa_no-such-token-at-all"}])
def test_who_has_no_agents_token_gets_no_lease(client, headers):
    agent = AgentAtWork.enrolled(client)

    answer = client.post(f"/v1/agents/{agent.agent_id}/leases", headers=headers)

    assert answer.status_code == 401


def test_an_agent_gets_no_lease_of_another(client):
    first, second = AgentAtWork.enrolled(client, "node-a"), AgentAtWork.enrolled(client, "node-b")

    answer = client.post(f"/v1/agents/{first.agent_id}/leases", headers=second.headers)

    assert answer.status_code == 403


def test_a_revoked_agent_is_nobody(client):
    agent = AgentAtWork.enrolled(client)

    assert client.delete(f"/v1/agents/{agent.agent_id}").status_code == 204

    assert agent.poll().status_code == 401
    assert client.get(f"/v1/agents/{agent.agent_id}").status_code == 404
    assert client.get("/v1/agents").json()["items"] == []


def test_an_agent_is_idle_then_busy_then_away(client):
    run_id, agent, _ = running(client)
    waiting = AgentAtWork.enrolled(client, "node-c")
    waiting.poll()

    def state(one):
        return client.get(f"/v1/agents/{one.agent_id}").json()["state"]

    assert (state(agent), state(waiting)) == ("busy", "idle")
    assert client.get(f"/v1/agents/{agent.agent_id}").json()["run_id"] == run_id
    age(client, 100)
    assert state(waiting) == "away"


def test_an_agent_may_report_new_devices(client):
    agent = AgentAtWork.enrolled(client)
    report = a_report(commands=["train", "finetune"])

    answer = client.put(f"/v1/agents/{agent.agent_id}", json=report, headers=agent.headers)

    assert answer.status_code == 200
    assert answer.json()["report"]["commands"] == ["train", "finetune"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("devices", []), ("commands", []), ("commands", ["rm -rf /"]), ("address", "a b"), ("x", 1)],
)
def test_a_bad_report_names_its_field(client, field, value):
    body = {**a_report(), "enrolment_token": a_token(client), field: value}

    answer = client.post("/v1/agents", json=body)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].startswith(field)


def test_a_poll_without_work_is_answered_with_nothing(client):
    assert AgentAtWork.enrolled(client).poll(wait=0.05).status_code == 204


def test_an_answer_that_was_lost_is_repeated(client):
    agent = AgentAtWork.enrolled(client)
    other = AgentAtWork.enrolled(client, "node-b")
    agent.poll()
    other.poll()
    a_run(client)

    first, again = agent.poll().json(), agent.poll().json()

    assert first == again
    assert first["state"] == "offered"


def test_agents_that_wait_are_woken_when_a_run_is_asked_for(client):
    agents = [AgentAtWork.enrolled(client, name) for name in ("node-a", "node-b")]
    with ThreadPoolExecutor(2) as threads:
        polls = [threads.submit(agent.poll, 30) for agent in agents]
        until(lambda: _states(client) == {"idle"})  # both are counted on, and no sweep follows
        run_id = a_run(client)
        answers = [poll.result() for poll in polls]

    assert {answer.json()["run_id"] for answer in answers} == {run_id}


def _states(client: TestClient) -> set[str]:
    return {agent["state"] for agent in client.get("/v1/agents").json()["items"]}


@pytest.mark.slow
def test_agents_that_wait_at_one_process_are_woken_by_a_run_of_another(make_app):
    """Nothing of it lies in a process: the database alone connects the two."""
    one, other = (make_app(planner=PLANNER, sweep_seconds=0.05) for _ in range(2))
    with TestClient(one) as here, TestClient(other) as there, ThreadPoolExecutor(2) as threads:
        agents = [AgentAtWork.enrolled(here, name) for name in ("node-a", "node-b")]
        polls = [threads.submit(agent.poll, 30) for agent in agents]
        run_id = a_run(there)
        answers = [poll.result() for poll in polls]

        assert {answer.json()["run_id"] for answer in answers} == {run_id}


def test_agents_of_another_project_get_no_lease(client, database):
    agents = [AgentAtWork.enrolled(client, name) for name in ("node-a", "node-b")]
    with database.engine.begin() as connection:
        other = "INSERT INTO projects (id, created_at) SELECT 'other', created_at FROM projects"
        connection.execute(text(other))
        connection.execute(text("UPDATE agents SET project_id = 'other'"))
    for agent in agents:
        agent.poll()
    run_id = a_run(client)

    assert client.get(f"/v1/runs/{run_id}").json()["state"] == "queued"
    assert client.get("/v1/agents").json()["items"] == []


def test_an_agent_that_stays_silent_is_given_nothing_until_it_polls(client):
    """Its offered lease ends; the other part of the gang is not run without it."""
    first, second = (AgentAtWork.enrolled(client, name) for name in ("node-a", "node-b"))
    first.poll()
    second.poll()
    run_id = a_run(client)
    first.poll()
    first.beat("preparing")

    pass_time(client, 16, but=(first,))
    answer = first.beat("preparing").json()

    assert answer["stop"]
    assert not answer["cancel_requested"]
    first.result("stopped")
    assert client.get(f"/v1/runs/{run_id}").json()["restart_count"] == 0
    assert first.poll().status_code == 204
    sweeper_of(client).sweep()
    assert client.get(f"/v1/runs/{run_id}").json()["state"] == "queued"
    assert second.poll().status_code == 200
    assert (second.lease["epoch"], first.poll().json()["epoch"]) == (2, 2)


def test_agents_are_read_in_pages_by_name_and_then_by_id(client):
    for name in ("node-b", "node-a", "node-a"):
        body = {**a_report(name), "enrolment_token": a_token(client)}
        assert client.post("/v1/agents", json=body).status_code == 201

    whole = client.get("/v1/agents").json()
    pages, cursor = [], None
    while cursor is not None or not pages:
        asked = {"limit": 1} if cursor is None else {"limit": 1, "cursor": cursor}
        page = client.get("/v1/agents", params=asked).json()
        pages.append(page["items"])
        cursor = page["next_cursor"]

    assert [agent["report"]["name"] for agent in whole["items"]] == ["node-a", "node-a", "node-b"]
    assert pages == [[agent] for agent in whole["items"]]
    shown = client.get("/agents", params={"cursor": "bm9uZQ"})
    assert shown.status_code == 422
