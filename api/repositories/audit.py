"""The audit log: written beside what it tells of, in the same transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from pydantic import JsonValue
from sqlalchemy import select
from sqlalchemy.orm import Session
from structlog.contextvars import get_contextvars

from api.caller import Caller
from api.tables import AuditEventRow

_TEXT_LIMIT = 200


class AuditRepository:
    """Appends and reads; nothing changes what was written."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(
        self,
        caller: Caller,
        *,
        action: str,
        subject: str,
        details: Mapping[str, JsonValue] | None = None,
    ) -> None:
        """Write that `caller` did `action`, such as `plan.delete`, to `subject`."""
        row = AuditEventRow(
            at=datetime.now(UTC),
            project_id=caller.project_id,
            actor=caller.name[:_TEXT_LIMIT],
            key_id=caller.key_id,
            action=action,
            subject=subject[:_TEXT_LIMIT],
            request_id=get_contextvars().get("request_id"),
            details=json.dumps(details or {}),
        )
        self._session.add(row)
        self._session.flush()

    def page(
        self,
        project_id: str,
        *,
        action: str | None,
        key_id: str | None,
        subject: str | None,
        before: int | None,
        limit: int,
    ) -> Sequence[AuditEventRow]:
        """Return at most `limit` entries of the project, the newest first, older than `before`."""
        wanted = (
            select(AuditEventRow)
            .where(AuditEventRow.project_id == project_id)
            .order_by(AuditEventRow.sequence.desc())
        )
        for column, value in (
            (AuditEventRow.action, action),
            (AuditEventRow.key_id, key_id),
            (AuditEventRow.subject, subject),
        ):
            if value is not None:
                wanted = wanted.where(column == value)
        if before is not None:
            wanted = wanted.where(AuditEventRow.sequence < before)
        return self._session.scalars(wanted.limit(limit)).all()
