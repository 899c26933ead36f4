"""The audit log, read."""

from __future__ import annotations

import json

from api.caller import Caller
from api.cursors import cursor, position
from api.db import Database
from api.repositories.audit import AuditRepository
from api.schemas import AuditEvent, AuditPage, AuditQuery
from api.services.records import column_text
from api.tables import AuditEventRow


class AuditService:
    """What happened in a project, and by whom."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list(self, caller: Caller, query: AuditQuery) -> AuditPage:
        """Return a page of the project's audit log, the newest entry first.

        Raises:
            InputError: if the cursor is none of ours.
        """
        before = None if query.cursor is None else position(query.cursor)
        with self._database.reading() as session:
            rows = AuditRepository(session).page(
                caller.project_id,
                action=query.action,
                key_id=query.key_id,
                subject=None if query.subject is None else column_text(query.subject),
                before=before,
                limit=query.limit + 1,
            )
        page = rows[: query.limit]
        more = cursor(page[-1].sequence) if len(rows) > query.limit else None
        return AuditPage(items=tuple(_event(row) for row in page), next_cursor=more)


def _event(row: AuditEventRow) -> AuditEvent:
    return AuditEvent(
        number=row.sequence,
        at=row.at,
        actor=row.actor,
        key_id=row.key_id,
        action=row.action,
        subject=row.subject,
        request_id=row.request_id,
        details=json.loads(row.details),
    )
