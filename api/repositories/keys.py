"""API keys and the projects that they belong to."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.orm import Session

from api.tables import ApiKeyRow, ProjectRow


class KeyRepository:
    """Keys, revoked ones too."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, row: ApiKeyRow) -> None:
        """Store a new key."""
        self._session.add(row)
        self._session.flush()

    def get(self, key_id: str) -> ApiKeyRow | None:
        """Return the key with that id."""
        return self._session.get(ApiKeyRow, key_id)

    def with_prefix(self, prefix: str) -> ApiKeyRow | None:
        """Return the key with that visible part."""
        return self._session.scalar(select(ApiKeyRow).where(ApiKeyRow.prefix == prefix))

    def all(self, *, project_ids: Collection[str] | None = None) -> Sequence[ApiKeyRow]:
        """Return the keys, or those of some projects, the oldest first."""
        wanted = select(ApiKeyRow).order_by(ApiKeyRow.created_at, ApiKeyRow.id)
        if project_ids is not None:
            wanted = wanted.where(ApiKeyRow.project_id.in_(project_ids))
        return self._session.scalars(wanted).all()

    def page(
        self, project_id: str, *, usable_at: datetime | None, after: ApiKeyRow | None, limit: int
    ) -> Sequence[ApiKeyRow]:
        """Return at most `limit` keys of the project, the oldest first, made after `after`.

        Where `usable_at` is given, only those that let somebody in at that instant.
        """
        wanted = (
            select(ApiKeyRow)
            .where(ApiKeyRow.project_id == project_id)
            .order_by(ApiKeyRow.created_at, ApiKeyRow.id)
        )
        if usable_at is not None:
            wanted = wanted.where(*_usable(usable_at))
        if after is not None:
            later, together = (
                ApiKeyRow.created_at > after.created_at,
                ApiKeyRow.created_at == after.created_at,
            )
            wanted = wanted.where(later | (together & (ApiKeyRow.id > after.id)))
        return self._session.scalars(wanted.limit(limit)).all()

    def count_usable(self, *, at: datetime) -> int:
        """Return how many keys let somebody in at that instant."""
        found = self._session.scalar(
            select(func.count()).select_from(ApiKeyRow).where(*_usable(at))
        )
        return found or 0

    def revoke(self, key_id: str, *, at: datetime) -> bool:
        """Have the key let nobody in any more; return whether it did until now."""
        changed = self._session.execute(
            update(ApiKeyRow)
            .where(ApiKeyRow.id == key_id, ApiKeyRow.revoked_at.is_(None))
            .values(revoked_at=at)
            .returning(ApiKeyRow.id)
        )
        return changed.first() is not None


def _usable(at: datetime) -> tuple[ColumnElement[bool], ...]:
    """Return what holds of keys that let somebody in at that instant."""
    return (
        ApiKeyRow.revoked_at.is_(None),
        ApiKeyRow.expires_at.is_(None) | (ApiKeyRow.expires_at > at),
    )


class ProjectRepository:
    """Projects."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def page(
        self, *, only: str | None = None, after: str | None = None, limit: int
    ) -> Sequence[ProjectRow]:
        """Return at most `limit` projects by name, behind `after`; at most one if it is named."""
        wanted = select(ProjectRow).order_by(ProjectRow.id)
        if only is not None:
            wanted = wanted.where(ProjectRow.id == only)
        if after is not None:
            wanted = wanted.where(ProjectRow.id > after)
        return self._session.scalars(wanted.limit(limit)).all()

    def add(self, project_id: str, *, at: datetime) -> None:
        """Store a new project; the database refuses a name that is taken."""
        self._session.add(ProjectRow(id=project_id, created_at=at))
        self._session.flush()

    def ensure(self, project_id: str, *, at: datetime) -> None:
        """Have the project exist."""
        if self._session.get(ProjectRow, project_id) is None:
            self._session.add(ProjectRow(id=project_id, created_at=at))
            self._session.flush()
