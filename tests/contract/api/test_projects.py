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
    answer = client.post("/v1/plans", json=a_request(), headers=teams[0])
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
    answer = client.post("/v1/plans", json=a_request(), headers=teams[1])

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
        headers = {**header, "Idempotency-Key": "once"}
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


def test_a_new_project_comes_with_the_key_that_administers_it(client, database):
    overseer = a_key(database, "read", "plan", "admin", name="root")

    answer = client.post(
        "/v1/projects", json={"name": "vision", "holder": "Ada"}, headers=bearer(overseer)
    )

    made = answer.json()
    assert answer.status_code == 201
    first = {"Authorization": f"Bearer {made['first_key']['key']}"}
    caller = client.get("/v1/caller", headers=first).json()
    assert (caller["project"], caller["name"]) == ("vision", "Ada")
    assert caller["scopes"] == ["admin", "plan", "read"]
    seen = client.get("/v1/projects", headers=first).json()["items"]
    assert [project["name"] for project in seen] == ["vision"]
    assert [key["name"] for key in seen[0]["keys"]] == ["Ada"]
    assert "key" not in seen[0]["keys"][0]


def test_a_new_project_is_in_the_logs_of_both(client, database):
    overseer = bearer(a_key(database, name="root"))
    made = client.post("/v1/projects", json={"name": "vision", "holder": "Ada"}, headers=overseer)
    first = {"Authorization": f"Bearer {made.json()['first_key']['key']}"}

    told = client.get("/v1/audit-events?action=project.create", headers=overseer).json()["items"]
    (theirs,) = client.get("/v1/audit-events", headers=first).json()["items"]

    assert [(event["actor"], event["subject"]) for event in told] == [("root", "vision")]
    assert (theirs["actor"], theirs["action"]) == ("root", "key.create")


def test_a_name_that_is_taken_is_refused_and_nothing_is_made(client, teams, database):
    overseer = bearer(a_key(database))

    answer = client.post("/v1/projects", json={"name": "team-a", "holder": "x"}, headers=overseer)

    assert answer.status_code == 409
    assert answer.json()["type"] == "urn:meshwright:problem:project-exists"
    assert answer.json()["errors"][0]["field"] == "name"
    assert len(client.get("/v1/keys", headers=teams[0]).json()["items"]) == 1
    told = client.get("/v1/audit-events?action=project.create", headers=overseer).json()
    assert told["items"] == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "Team A", "holder": "x"}, "name"),
        ({"name": "-a", "holder": "x"}, "name"),
        ({"name": "a" * 65, "holder": "x"}, "name"),
        ({"name": "a\n", "holder": "x"}, "name"),
        ({"name": "team-a", "holder": ""}, "holder"),
        ({"name": "team-a"}, "holder"),
    ],
)
def test_a_project_that_cannot_be_names_the_field(client, fields, field):
    answer = client.post("/v1/projects", json=fields)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field
    found = client.get("/v1/projects").json()["items"]
    assert [project["name"] for project in found] == ["default"]


def test_only_an_administrator_of_the_first_project_sees_all_and_makes_more(
    client, database, teams
):
    overseer, reader = bearer(a_key(database)), bearer(a_key(database, "read"))

    def names(header):
        return [item["name"] for item in client.get("/v1/projects", headers=header).json()["items"]]

    assert names(overseer) == ["default", "team-a", "team-b"]
    assert names(teams[1]) == ["team-b"]
    assert client.get("/v1/projects", headers=reader).status_code == 403
    asked = {"name": "team-c", "holder": "x"}
    assert client.post("/v1/projects", json=asked, headers=teams[0]).status_code == 403
    assert client.post("/v1/projects", json=asked, headers=overseer).status_code == 201


def test_projects_are_read_in_pages(client, database, teams):
    overseer = bearer(a_key(database))

    first = client.get("/v1/projects?limit=2", headers=overseer).json()
    cursor = {"cursor": first["next_cursor"]}
    rest = client.get("/v1/projects", params=cursor, headers=overseer).json()

    found = [project["name"] for project in (*first["items"], *rest["items"])]
    assert found == ["default", "team-a", "team-b"]
    assert rest["next_cursor"] is None
    assert client.get("/v1/projects", params=cursor, headers=teams[0]).json()["items"] == []


def test_the_audit_log_tells_of_one_key_or_one_thing(client, database):
    key = a_key(database, name="cleaner")
    client.delete("/v1/plans/none", headers=bearer(key))
    made = client.post("/v1/keys", json={"name": "x", "scopes": ["read"]}, headers=bearer(key))

    by_key = client.get("/v1/audit-events", params={"key_id": key.id}).json()["items"]
    about = client.get("/v1/audit-events", params={"subject": key.id}).json()["items"]

    assert [(event["action"], event["subject"]) for event in by_key] == [
        ("key.create", made.json()["id"])
    ]
    assert [(event["actor"], event["action"]) for event in about] == [("operator", "key.create")]
