"""What ended long ago is forgotten; what runs, and plans, stay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import func, select

from api.repositories.operations import OperationRepository
from api.repositories.plans import IdempotencyKeyRepository
from api.services.pruning import Pruning
from api.settings import Settings
from api.tables import IdempotencyKeyRow, OperationEventRow, OperationRow

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


def test_old_idempotency_keys_may_be_used_anew(database):
    with database.writing() as session:
        keys = IdempotencyKeyRepository(session, "default")
        keys.claim("old", request_digest="a", at=NOW - timedelta(days=3))
        keys.claim("recent", request_digest="a", at=NOW - timedelta(days=1))

    Pruning(database, Settings(idempotency_key_days=2)).prune(NOW)

    with database.reading() as session:
        assert session.scalar(select(func.count()).select_from(IdempotencyKeyRow)) == 1
