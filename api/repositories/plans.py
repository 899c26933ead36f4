"""Stored answers and the idempotency keys that led to them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, delete, select, update
from sqlalchemy.orm import Session, defer

from api.repositories.plan_table import matching
from api.table_query import TableQuery
from api.tables import IdempotencyKeyRow, PlanRow, PlanTagRow, ProjectRow

_KEPT = select(PlanRow.id, PlanRow.etag, PlanRow.document, PlanRow.summary, PlanRow.notes).where(
    PlanRow.project_id == bindparam("project_id"), PlanRow.id == bindparam("plan_id")
)


class PlanRepository:
    """Plans and infeasible answers of one project; those of others do not exist here."""

    def __init__(self, session: Session, project_id: str) -> None:
        self._session = session
        self._project_id = project_id

    def add(self, row: PlanRow) -> None:
        """Store an answer of the project."""
        row.project_id = self._project_id
        self._session.add(row)
        self._session.flush()
        self._count_change()

    def get(self, plan_id: str) -> PlanRow | None:
        """Return the answer with that id."""
        return self._session.scalar(self._all().where(PlanRow.id == plan_id))

    def answering(self, request_digest: str) -> PlanRow | None:
        """Return the answer to the request with that digest."""
        return self._session.scalar(self._all().where(PlanRow.request_digest == request_digest))

    def summaries(self, plan_ids: Collection[str]) -> Sequence[str]:
        """Return the summaries of those of the answers that exist, as JSON."""
        mine = (PlanRow.project_id == self._project_id, PlanRow.id.in_(plan_ids))
        return self._session.scalars(select(PlanRow.summary).where(*mine)).all()

    def locked(self, plan_id: str) -> PlanRow | None:
        """Return the answer with that id, which nobody else changes before the end of this."""
        return self._session.scalar(self._all().where(PlanRow.id == plan_id).with_for_update())

    def tag(self, plan_id: str, tags: Sequence[str]) -> None:
        """Have the answer with that id found by `tags`, and by no others."""
        mine = (PlanTagRow.project_id == self._project_id, PlanTagRow.plan_id == plan_id)
        self._session.execute(delete(PlanTagRow).where(*mine))
        self._session.add_all(
            PlanTagRow(project_id=self._project_id, plan_id=plan_id, tag=tag) for tag in tags
        )
        self._session.flush()
        self._count_change()

    def page(self, query: TableQuery, *, before: int | None, limit: int) -> Sequence[PlanRow]:
        """Return at most `limit` answers that match, the newest first, older than `before`.

        They come without their long texts, which a list does not show.
        """
        wanted = (
            select(PlanRow)
            .where(*matching(self._project_id, query))
            .options(defer(PlanRow.document, raiseload=True), defer(PlanRow.notes, raiseload=True))
            .order_by(PlanRow.sequence.desc())
        )
        if before is not None:
            wanted = wanted.where(PlanRow.sequence < before)
        return self._session.scalars(wanted.limit(limit)).all()

    def delete(self, plan_id: str) -> bool:
        """Remove the answer with that id; return whether there was one."""
        gone = self._session.execute(
            delete(PlanRow)
            .where(PlanRow.project_id == self._project_id, PlanRow.id == plan_id)
            .returning(PlanRow.id)
        )
        self._count_change()
        return gone.first() is not None

    def _count_change(self) -> None:
        """Have what was made of the project's plans hold no longer."""
        mine = update(ProjectRow).where(ProjectRow.id == self._project_id)
        changes = ProjectRow.plan_changes + 1
        self._session.execute(
            mine.values(plan_changes=changes), execution_options={"synchronize_session": False}
        )

    def _all(self) -> Select[PlanRow]:
        return select(PlanRow).where(PlanRow.project_id == self._project_id)


def kept_plan(
    connection: Connection, project_id: str, plan_id: str
) -> Row[*tuple[Any, ...]] | None:
    """Return what is kept of the project's answer with that id, as columns."""
    return connection.execute(_KEPT, {"project_id": project_id, "plan_id": plan_id}).first()


class IdempotencyKeyRepository:
    """Which request each client's key stands for in one project."""

    def __init__(self, session: Session, project_id: str) -> None:
        self._session = session
        self._project_id = project_id

    def claim(self, key: str, *, request_digest: str, at: datetime) -> str:
        """Return the digest that `key` stands for: the one given, unless it had one already."""
        known = self._session.get(IdempotencyKeyRow, (self._project_id, key))
        if known is not None:
            return known.request_digest
        row = IdempotencyKeyRow(
            project_id=self._project_id, key=key, request_digest=request_digest, created_at=at
        )
        self._session.add(row)
        self._session.flush()
        return request_digest


def forget_idempotency_keys(session: Session, *, created_before: datetime) -> None:
    """Remove the keys of all projects that were first used before then."""
    session.execute(delete(IdempotencyKeyRow).where(IdempotencyKeyRow.created_at < created_before))
