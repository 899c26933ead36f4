"""What ended long ago is forgotten; what runs, and plans, stay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import func, select

from api.repositories.operations import OperationRepository
from api.repositories.plans import IdempotencyKeyRepository
from api.repositories.spent_tokens import SpentTokenRepository
from api.services.pruning import Pruning
from api.settings import Settings
from api.tables import IdempotencyKeyRow, OperationEventRow, OperationRow
from tests.contract.api.agents_at_work import AT_WORK, a_run, launch, running

APPLICATION = AT_WORK
NOW = datetime(2026, 6, 1, tzinfo=UTC)


def an_operation(database, name: str, *, days_ago: float | None) -> None:
    """Store an operation that ended so many days ago, or still runs."""
    finished = None if days_ago is None else NOW - timedelta(days=days_ago)
    row = OperationRow(
        id=name,
        project_id="default",
        request_digest=name,
        state="running" if finished is None else "succeeded",
        lease_expires_at=NOW,
        created_at=NOW - timedelta(days=99),
        finished_at=finished,
    )
    with database.writing() as session:
        OperationRepository(session).add(row)
        OperationRepository(session).add_event(name, kind="state", data="{}")


def test_old_operations_go_with_their_events_and_others_stay(database):
    for name, days_ago in (("old", 31), ("recent", 29), ("running", None)):
        an_operation(database, name, days_ago=days_ago)

    gone = Pruning(database, Settings(finished_operation_days=30)).prune(NOW)

    assert gone == 1
    with database.reading() as session:
        assert set(session.scalars(select(OperationRow.id))) == {"recent", "running"}
        events = session.scalars(select(OperationEventRow.operation_id))
        assert set(events) == {"recent", "running"}


def test_more_than_a_batch_goes_at_once(database):
    with database.writing() as session:
        session.add_all(
            OperationRow(
                id=f"operation-{number}",
                project_id="default",
                request_digest=str(number),
                state="failed",
                lease_expires_at=NOW,
                created_at=NOW,
                finished_at=NOW,
            )
            for number in range(1001)
        )

    assert Pruning(database, Settings()).prune(NOW + timedelta(days=31)) == 1001


def test_logs_and_metrics_of_runs_that_ended_long_ago_go_and_runs_stay(client):
    """A live run keeps all it ever wrote."""
    ended, *agents = running(client)
    write(*agents)
    for agent in agents:
        agent.result("succeeded")
        agent.poll()
    live = a_run(client)
    for agent in agents:
        agent.poll()
    launch(*sorted(agents, key=lambda agent: agent.lease["node_rank"]))
    write(*agents)
    pruning = Pruning(client.app.state.database, Settings(run_log_days=90, run_metric_days=365))

    pruning.prune(datetime.now(UTC) + timedelta(days=89))
    assert log_of(client, ended)["text"] == "line\n"
    pruning.prune(datetime.now(UTC) + timedelta(days=91))
    assert log_of(client, ended) == {
        "attempt": 1,
        "node_rank": 0,
        "offset": 0,
        "end_offset": 0,
        "text": "",
        "complete": True,
        "removed": True,
    }
    assert len(client.get(f"/v1/runs/{ended}/metrics").json()["items"]) == 4
    pruning.prune(datetime.now(UTC) + timedelta(days=366))

    assert client.get(f"/v1/runs/{ended}/metrics").json()["items"] == []
    assert client.get(f"/v1/runs/{ended}").json()["state"] == "succeeded"
    assert len(client.get(f"/v1/runs/{live}/metrics").json()["items"]) == 4
    assert (log_of(client, live)["text"], log_of(client, live)["removed"]) == ("line\n", False)


def write(*agents):
    """A line and two steps of each."""
    for agent in agents:
        agent.log(0, "line\n")
        agent.metrics(0, 1, 2)


def log_of(client, run_id):
    return client.get(f"/v1/runs/{run_id}/logs").json()


def test_old_idempotency_keys_may_be_used_anew(database):
    with database.writing() as session:
        keys = IdempotencyKeyRepository(session, "default")
        keys.claim("old", request_digest="a", at=NOW - timedelta(days=3))
        keys.claim("recent", request_digest="a", at=NOW - timedelta(days=1))

    Pruning(database, Settings(idempotency_key_days=2)).prune(NOW)

    with database.reading() as session:
        assert session.scalar(select(func.count()).select_from(IdempotencyKeyRow)) == 1


def test_spent_tokens_are_kept_for_as_long_as_they_would_be_worth_something(database):
    with database.writing() as session:
        spent = SpentTokenRepository(session)
        spent.spend("old", expires_at=NOW - timedelta(seconds=1))
        spent.spend("recent", expires_at=NOW + timedelta(seconds=1))

    Pruning(database, Settings()).prune(NOW)

    with database.reading() as session:
        spent = SpentTokenRepository(session)
        assert [spent.has("old"), spent.has("recent")] == [False, True]
