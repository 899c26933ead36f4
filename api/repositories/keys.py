"""API keys and the projects that they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func, select, update
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

    def all(self, *, project_id: str | None = None) -> Sequence[ApiKeyRow]:
        """Return the keys, or those of one project, the oldest first."""
        wanted = select(ApiKeyRow).order_by(ApiKeyRow.created_at, ApiKeyRow.id)
        if project_id is not None:
            wanted = wanted.where(ApiKeyRow.project_id == project_id)
        return self._session.scalars(wanted).all()

    def count_usable(self, *, at: datetime) -> int:
        """Return how many keys let somebody in at that instant."""
        found = self._session.scalar(
            select(func.count())
            .select_from(ApiKeyRow)
            .where(
                ApiKeyRow.revoked_at.is_(None),
                ApiKeyRow.expires_at.is_(None) | (ApiKeyRow.expires_at > at),
            )
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


class ProjectRepository:
    """Projects."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def all(self) -> Sequence[ProjectRow]:
        """Return the projects by name."""
        return self._session.scalars(select(ProjectRow).order_by(ProjectRow.id)).all()

    def add(self, project_id: str, *, at: datetime) -> None:
        """Store a new project; the database refuses a name that is taken."""
        self._session.add(ProjectRow(id=project_id, created_at=at))
        self._session.flush()

    def ensure(self, project_id: str, *, at: datetime) -> None:
        """Have the project exist."""
        if self._session.get(ProjectRow, project_id) is None:
            self._session.add(ProjectRow(id=project_id, created_at=at))
            self._session.flush()
