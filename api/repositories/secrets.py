"""Secrets of the service itself."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy.orm import Session

from api.tables import ServiceSecretRow


class SecretRepository:
    """Secrets by name."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, name: str) -> str | None:
        """Return the secret with that name."""
        known = self._session.get(ServiceSecretRow, name)
        return None if known is None else known.value

    def get_or_add(self, name: str, new_value: str) -> str:
        """Return the secret with that name, which is `new_value` if there was none."""
        known = self.get(name)
        if known is not None:
            return known
        row = ServiceSecretRow(name=name, value=new_value, created_at=datetime.now(UTC))
        self._session.add(row)
        self._session.flush()
        return new_value
