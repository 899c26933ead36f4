"""Operations and their events."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, Integer, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.metadata import Base, UtcDateTime


class OperationRow(Base):
    """A solve that was asked for. At most one runs for a request of a project at a time.

    The process that solves renews `lease_expires_at`, by its own clock; once others have seen it
    unchanged for the length of a lease, by theirs, it counts as dead.
    """

    __tablename__ = "operations"
    __table_args__ = (
        Index(
            "uq_operations_running_request_digest",
            "project_id",
            "request_digest",
            unique=True,
            sqlite_where=text("state = 'running'"),
            postgresql_where=text("state = 'running'"),
        ),
        Index("ix_operations_state", "state", "lease_expires_at"),
        Index("ix_operations_finished_at", "finished_at"),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    project_id: Mapped[str] = mapped_column(String(64), ForeignKey("projects.id"))
    request_digest: Mapped[str] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(16))
    lease_expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    plan_id: Mapped[str | None] = mapped_column(String(64))
    problem: Mapped[str | None] = mapped_column(Text)
    progress: Mapped[str | None] = mapped_column(Text)


class OperationEventRow(Base):
    """One thing that happened to an operation, for event streams."""

    __tablename__ = "operation_events"

    operation_id: Mapped[str] = mapped_column(
        String(64), ForeignKey("operations.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(String(16))
    data: Mapped[str] = mapped_column(Text)
