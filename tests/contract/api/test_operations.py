"""/v1/operations."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta

import pytest
from fastapi.testclient import TestClient

from api.repositories.operations import OperationRepository
from api.tables import OperationRow
from tests.contract.api.callers import LOCAL
from tests.contract.api.solving import a_request, a_running_solve, ended, process_ids


def finished_operation(client) -> str:
    """Have a quick solve run as an operation, to its end."""
    answer = client.post("/v1/plans", json=a_request(), headers={"Prefer": "wait=0"})
    return str(ended(client, answer.json()["id"]).id)


def left_operation(database, *, leased_for_seconds: float) -> str:
    """Store what a service that died leaves behind."""
    now = datetime.now(UTC)
    row = OperationRow(
        id="operation-left",
        project_id="default",
        request_digest="0" * 64,
        state="running",
        lease_expires_at=now + timedelta(seconds=leased_for_seconds),
        created_at=now,
    )
    with database.writing() as session:
        OperationRepository(session).add(row)
    return "operation-left"


def events_of(text: str) -> list[tuple[int, str]]:
    """Return number and kind of each event in a stream."""
    return [(int(event["id"]), event["event"]) for event in parsed(text)]


def parsed(text: str) -> list[dict[str, str]]:
    """Return the fields of each event in a stream."""
    blocks = [block.splitlines() for block in text.split("\n\n") if block]
    return [dict(line.split(": ", 1) for line in block) for block in blocks]


def test_a_running_operation_shows_its_progress(client):
    operation = client.get(f"/v1/operations/{a_running_solve(client)}").json()

    assert operation["state"] == "running"
    assert operation["progress"]["configurations_total"] == 100


def test_a_finished_operation_names_its_plan(client):
    operation = client.get(f"/v1/operations/{finished_operation(client)}").json()

    assert operation["state"] == "succeeded"
    assert client.get(f"/v1/plans/{operation['plan_id']}").status_code == 200


def test_cancelling_kills_the_solve(client):
    operation_id = a_running_solve(client)
    (process_id,) = process_ids(client)

    answer = client.delete(f"/v1/operations/{operation_id}")

    assert answer.json()["state"] == "cancelled"
    client.post("/v1/plans", json=a_request())  # the only slot is free again
    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)


def test_cancelling_twice_is_as_good_as_once(client):
    path = f"/v1/operations/{a_running_solve(client)}"

    assert client.delete(path).json() == client.delete(path).json()


def test_a_waiting_solve_can_be_cancelled(client):
    a_running_solve(client)
    waiting = client.post("/v1/plans", json=a_request(), headers={"Prefer": "wait=0"}).json()

    assert client.delete(f"/v1/operations/{waiting['id']}").json()["state"] == "cancelled"


def test_a_finished_operation_cannot_be_cancelled(client):
    assert client.delete(f"/v1/operations/{finished_operation(client)}").status_code == 409


@pytest.mark.parametrize("path", ["/v1/operations/none", "/v1/operations/none/events"])
def test_an_unknown_operation_is_not_found(client, path):
    assert client.get(path).status_code == 404


def test_the_stream_tells_the_story_in_order_and_ends(client):
    answer = client.get(f"/v1/operations/{finished_operation(client)}/events")

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert events_of(answer.text) == [(1, "state"), (2, "progress"), (3, "state")]
    assert json.loads(parsed(answer.text)[-1]["data"]) == {"state": "succeeded"}


def test_a_stream_goes_on_after_the_last_event_seen(client):
    path = f"/v1/operations/{finished_operation(client)}/events"

    answer = client.get(path, headers={"Last-Event-ID": "2"})

    assert events_of(answer.text) == [(3, "state")]


def test_a_stopped_service_fails_its_operations(make_app):
    app = make_app()
    with TestClient(app) as client:
        operation_id = a_running_solve(client)
    with TestClient(make_app()) as client:
        operation = client.get(f"/v1/operations/{operation_id}").json()

    assert operation["state"] == "failed"
    assert operation["problem"]["detail"] == "the service restarted"


@pytest.mark.parametrize("leased_for_seconds", [-3600, 3600])
def test_what_a_dead_service_left_is_failed_at_the_start(make_app, database, leased_for_seconds):
    """A SQLite file has one service; on PostgreSQL another may hold the lease, by any clock."""
    shared = database.engine.dialect.name == "postgresql"
    operation_id = left_operation(database, leased_for_seconds=leased_for_seconds)
    with TestClient(make_app()) as client:
        operation = client.get(f"/v1/operations/{operation_id}").json()

    assert operation["state"] == ("running" if shared else "failed")
    if not shared:
        assert operation["problem"]["type"] == "urn:meshwright:problem:solve-abandoned"


def test_an_operation_cancelled_through_another_service_stops_here(make_app):
    """Both serve one database; the one that solves learns it when it renews its lease."""
    with TestClient(make_app(lease_seconds=0.2)) as solving:
        operation_id = a_running_solve(solving)
        other = make_app()
        other.state.services.operations.cancel(LOCAL, operation_id)
        recorded = solving.app.state.solves.recorded(operation_id)
        if recorded is not None:
            recorded.result()

        assert process_ids(solving) == ()
