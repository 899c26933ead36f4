"""The audit log."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.metadata import SEQUENCE, Base, UtcDateTime


class AuditEventRow(Base):
    """Who did what to what, and when. Triggers refuse to change or remove a row.

    No foreign keys: an entry outlives what it tells of.
    """

    __tablename__ = "audit_events"
    __table_args__ = (
        Index("ix_audit_events_project_id", "project_id", "sequence"),
        {"sqlite_autoincrement": True},
    )

    sequence: Mapped[int] = mapped_column(SEQUENCE, primary_key=True, autoincrement=True)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    project_id: Mapped[str] = mapped_column(String(64))
    actor: Mapped[str] = mapped_column(String(200))
    key_id: Mapped[str | None] = mapped_column(String(64))
    action: Mapped[str] = mapped_column(String(64))
    subject: Mapped[str] = mapped_column(String(200))
    request_id: Mapped[str | None] = mapped_column(String(64))
    details: Mapped[str] = mapped_column(Text)
