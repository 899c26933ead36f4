"""Operations and their events."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from api.tables import OperationEventRow, OperationRow


class OperationRepository:
    """Solves that were asked for."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, row: OperationRow) -> None:
        """Store a new operation."""
        self._session.add(row)
        self._session.flush()

    def get(self, operation_id: str) -> OperationRow | None:
        """Return the operation with that id."""
        return self._session.get(OperationRow, operation_id)

    def solving(self, request_digest: str, *, project_id: str) -> OperationRow | None:
        """Return the operation that runs for the project's request with that digest."""
        return self._session.scalar(
            select(OperationRow).where(
                OperationRow.project_id == project_id,
                OperationRow.request_digest == request_digest,
                OperationRow.state == "running",
            )
        )

    def move(self, operation_id: str, *, allowed_from: Sequence[str], **values: Any) -> bool:
        """Change the operation where its state allows it; return whether it did."""
        changed = self._session.execute(
            update(OperationRow)
            .where(OperationRow.id == operation_id, OperationRow.state.in_(allowed_from))
            .values(**values)
            .returning(OperationRow.id)
        )
        return changed.first() is not None

    def renew_leases(self, operation_ids: Collection[str], *, until: datetime) -> set[str]:
        """Extend the leases of those operations that still run, and return their ids."""
        renewed = self._session.execute(
            update(OperationRow)
            .where(OperationRow.id.in_(operation_ids), OperationRow.state == "running")
            .values(lease_expires_at=until)
            .returning(OperationRow.id)
        )
        return set(renewed.scalars())

    def leases(self) -> dict[str, datetime]:
        """Return the operations that run, with the ends of their leases."""
        wanted = select(OperationRow.id, OperationRow.lease_expires_at)
        rows = self._session.execute(wanted.where(OperationRow.state == "running"))
        return {row.id: row.lease_expires_at for row in rows}

    def forget(self, *, finished_before: datetime, limit: int) -> int:
        """Remove at most `limit` operations that ended before then; return how many those were."""
        old = (
            select(OperationRow.id)
            .where(OperationRow.state != "running", OperationRow.finished_at < finished_before)
            .order_by(OperationRow.finished_at)
            .limit(limit)
        )
        gone = self._session.execute(
            delete(OperationRow).where(OperationRow.id.in_(old)).returning(OperationRow.id)
        )
        return len(gone.all())

    def add_event(self, operation_id: str, *, kind: str, data: str) -> None:
        """Append an event to the operation's stream."""
        last = self._session.scalar(
            select(func.max(OperationEventRow.number)).where(
                OperationEventRow.operation_id == operation_id
            )
        )
        row = OperationEventRow(
            operation_id=operation_id, number=(last or 0) + 1, kind=kind, data=data
        )
        self._session.add(row)
        self._session.flush()

    def events(self, operation_id: str, *, after: int) -> Sequence[OperationEventRow]:
        """Return the operation's events numbered above `after`, in order."""
        return self._session.scalars(
            select(OperationEventRow)
            .where(OperationEventRow.operation_id == operation_id, OperationEventRow.number > after)
            .order_by(OperationEventRow.number)
        ).all()
