"""Tokens that were good once."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import delete
from sqlalchemy.orm import Session

from api.tables import SpentTokenRow


class SpentTokenRepository:
    """Signed tokens that are worth nothing any more, by the SHA-256 of their random part."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def has(self, digest: str) -> bool:
        """Return whether the token was spent."""
        return self._session.get(SpentTokenRow, digest) is not None

    def spend(self, digest: str, *, expires_at: datetime) -> bool:
        """Have the token be worth nothing from now on; return whether it was worth something.

        Raises:
            IntegrityError: if it is spent elsewhere in this moment.
        """
        if self.has(digest):
            return False
        self._session.add(SpentTokenRow(digest=digest, expires_at=expires_at))
        self._session.flush()
        return True

    def forget(self, *, expired_before: datetime) -> None:
        """Forget tokens that are too old to be worth anything."""
        self._session.execute(
            delete(SpentTokenRow).where(SpentTokenRow.expires_at < expired_before)
        )
