"""The tables. What is asked for by field is a column; documents are kept as their JSON text."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    TypeDecorator,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

NAMING = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
SEQUENCE = BigInteger().with_variant(Integer, "sqlite")


class UtcDateTime(TypeDecorator[datetime]):
    """An instant: aware on the way in, in UTC on the way out, also where the database drops it."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """Return the instant in UTC."""
        del dialect
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the instant with its time zone."""
        del dialect
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """What all tables share."""

    metadata = MetaData(naming_convention=NAMING)


class PlanRow(Base):
    """An answer: a plan or an infeasible job. `sequence` orders them by arrival."""

    __tablename__ = "plans"
    __table_args__ = (
        Index("ix_plans_model_name", "model_name", "sequence"),
        Index("ix_plans_cluster_name", "cluster_name", "sequence"),
        {"sqlite_autoincrement": True},
    )

    sequence: Mapped[int] = mapped_column(SEQUENCE, primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(String(64), unique=True)
    request_digest: Mapped[str] = mapped_column(String(64), unique=True)
    status: Mapped[str] = mapped_column(String(16))
    model_name: Mapped[str] = mapped_column(String(200))
    cluster_name: Mapped[str] = mapped_column(String(200))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    etag: Mapped[str] = mapped_column(String(64))
    summary: Mapped[str] = mapped_column(Text)
    document: Mapped[str] = mapped_column(Text)


class OperationRow(Base):
    """A solve that was asked for. At most one runs for a request at a time.

    The process that solves renews `lease_expires_at`; once that has passed, it counts as dead.
    """

    __tablename__ = "operations"
    __table_args__ = (
        Index(
            "uq_operations_running_request_digest",
            "request_digest",
            unique=True,
            sqlite_where=text("state = 'running'"),
            postgresql_where=text("state = 'running'"),
        ),
        Index("ix_operations_state", "state", "lease_expires_at"),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
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


class IdempotencyKeyRow(Base):
    """A client's key and the request that it was first used for."""

    __tablename__ = "idempotency_keys"

    key: Mapped[str] = mapped_column(String(200), primary_key=True)
    request_digest: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
