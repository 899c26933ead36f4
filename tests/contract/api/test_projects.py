"""Projects: what belongs to one team does not exist for another."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from tests.contract.api.callers import a_key, bearer
from tests.contract.api.solving import ENDLESS, a_request


@pytest.fixture
def teams(database):
    """The headers of two teams that may do everything, each in its own project."""
    return tuple(bearer(a_key(database, project=name)) for name in ("team-a", "team-b"))


@pytest.fixture
def plan_id(client, teams):
    """A plan of the first team."""
    answer = client.post("/v1/plans", json=a_request(), headers={**teams[0], "Prefer": "wait=20"})
    return answer.json()["id"]


def test_a_plan_of_another_project_does_not_exist(client, teams, plan_id):
    own, other = teams

    assert client.get(f"/v1/plans/{plan_id}", headers=own).status_code == 200
    assert client.get(f"/v1/plans/{plan_id}", headers=other).status_code == 404
    assert client.delete(f"/v1/plans/{plan_id}", headers=other).status_code == 404
    assert client.get(f"/plans/{plan_id}", headers=other).status_code == 404
    compared = client.get(f"/v1/plans/compare?plan={plan_id}&plan={plan_id}", headers=other)
    assert compared.status_code == 404
    assert client.get("/v1/plans", headers=other).json()["items"] == []
    assert len(client.get("/v1/plans", headers=own).json()["items"]) == 1


def test_two_projects_may_ask_for_the_same(client, teams, plan_id):
    answer = client.post("/v1/plans", json=a_request(), headers={**teams[1], "Prefer": "wait=20"})

    assert answer.status_code == 201
    assert answer.json()["id"] == plan_id
    assert client.delete(f"/v1/plans/{plan_id}", headers=teams[1]).status_code == 204
    assert client.get(f"/v1/plans/{plan_id}", headers=teams[0]).status_code == 200


def test_a_solve_of_another_project_is_neither_seen_nor_ended(client, teams):
    own, other = teams
    started = client.post(
        "/v1/plans", json=a_request(ENDLESS), headers={**own, "Prefer": "wait=0"}
    ).json()["id"]
    path = f"/v1/operations/{started}"

    assert client.get(path, headers=other).status_code == 404
    assert client.get(f"{path}/events", headers=other).status_code == 404
    assert client.delete(path, headers=other).status_code == 404
    assert client.delete(path, headers=own).json()["state"] == "cancelled"


def test_an_idempotency_key_belongs_to_its_project(client, teams):
    def status(header, batch):
        headers = {**header, "Idempotency-Key": "once", "Prefer": "wait=20"}
        return client.post("/v1/plans", json=a_request(batch), headers=headers).status_code

    assert status(teams[0], 16) == 201
    assert status(teams[0], 32) == 422
    assert status(teams[1], 32) == 201


def test_keys_and_audit_of_another_project_do_not_exist(client, database, teams):
    key = a_key(database, project="team-a")

    assert client.delete(f"/v1/keys/{key.id}", headers=teams[1]).status_code == 404
    listed = client.get("/v1/keys", headers=teams[1]).json()["items"]
    assert {item["project"] for item in listed} == {"team-b"}
    events = client.get("/v1/audit-events", headers=teams[1]).json()["items"]
    assert key.id not in {event["subject"] for event in events}


def test_what_is_done_is_written_down_with_who_did_it(client, teams, plan_id):
    client.delete(f"/v1/plans/{plan_id}", headers={**teams[0], "X-Request-ID": "the-deletion"})

    events = client.get("/v1/audit-events", headers=teams[0]).json()["items"]

    assert [event["action"] for event in events] == ["plan.delete", "plan.request", "key.create"]
    assert [event["actor"] for event in events] == ["ci", "ci", "operator"]
    assert events[0]["subject"] == plan_id
    assert events[0]["request_id"] == "the-deletion"


def test_cancelling_is_written_down(client, teams):
    started = client.post(
        "/v1/plans", json=a_request(ENDLESS), headers={**teams[0], "Prefer": "wait=0"}
    ).json()["id"]
    client.delete(f"/v1/operations/{started}", headers=teams[0])

    found = client.get("/v1/audit-events?action=operation.cancel", headers=teams[0]).json()

    assert [event["subject"] for event in found["items"]] == [started]


def test_the_audit_log_is_read_in_pages(client, database):
    keys = [a_key(database) for _ in range(3)]

    first = client.get("/v1/audit-events?limit=2").json()
    rest = client.get("/v1/audit-events", params={"cursor": first["next_cursor"]}).json()

    found = [event["subject"] for event in (*first["items"], *rest["items"])]
    assert found == [key.id for key in reversed(keys)]
    assert rest["next_cursor"] is None


@pytest.mark.parametrize(
    "statement", ["UPDATE audit_events SET actor = 'nobody'", "DELETE FROM audit_events"]
)
def test_the_database_itself_keeps_the_audit_log_as_it_is(database, statement):
    a_key(database)

    with (
        pytest.raises(DBAPIError, match="append-only"),
        database.engine.begin() as connection,
    ):
        connection.execute(text(statement))
