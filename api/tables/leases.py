"""Leases, and what agents write under them: logs and metrics."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import (
    BigInteger,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.metadata import Base, UtcDateTime


class LeaseRow(Base):
    """An agent's part of a run in one epoch; it is live until `ended_at` is set.

    `log_offset` and `metric_sequence` say how much of either is stored.
    """

    __tablename__ = "leases"
    __table_args__ = (
        UniqueConstraint("run_id", "epoch", "node_rank", name="uq_leases_run_id"),
        Index(
            "uq_leases_live_agent_id",
            "agent_id",
            unique=True,
            sqlite_where=text("ended_at IS NULL"),
            postgresql_where=text("ended_at IS NULL"),
        ),
        Index("ix_leases_ended_at", "ended_at", "expires_at"),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    run_id: Mapped[str] = mapped_column(String(64), ForeignKey("runs.id", ondelete="CASCADE"))
    agent_id: Mapped[str] = mapped_column(String(64), ForeignKey("agents.id"))
    epoch: Mapped[int] = mapped_column(Integer)
    node_rank: Mapped[int] = mapped_column(Integer)
    node_count: Mapped[int] = mapped_column(Integer)
    node_span: Mapped[int] = mapped_column(Integer)
    first_rank: Mapped[int] = mapped_column(Integer)
    rank_count: Mapped[int] = mapped_column(Integer)
    state: Mapped[str] = mapped_column(String(16))
    offered_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    step: Mapped[int | None] = mapped_column(BigInteger)
    checkpoint_step: Mapped[int | None] = mapped_column(BigInteger)
    log_offset: Mapped[int] = mapped_column(BigInteger)
    metric_sequence: Mapped[int] = mapped_column(BigInteger)
    reason: Mapped[str | None] = mapped_column(Text)
    result_digest: Mapped[str | None] = mapped_column(String(64))
    result: Mapped[str | None] = mapped_column(Text)


class LeaseLogRow(Base):
    """Text of a lease's log from byte `position` on, `length` bytes of UTF-8."""

    __tablename__ = "lease_logs"

    lease_id: Mapped[str] = mapped_column(
        String(64), ForeignKey("leases.id", ondelete="CASCADE"), primary_key=True
    )
    position: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    length: Mapped[int] = mapped_column(Integer)
    text: Mapped[str] = mapped_column(Text)


class LeaseMetricRow(Base):
    """What one rank measured in one step, numbered from 0 within the lease."""

    __tablename__ = "lease_metrics"

    lease_id: Mapped[str] = mapped_column(
        String(64), ForeignKey("leases.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    rank: Mapped[int] = mapped_column(Integer)
    step: Mapped[int] = mapped_column(BigInteger)
    step_seconds: Mapped[float] = mapped_column(Float)
    tokens_per_second: Mapped[float | None] = mapped_column(Float)
    loss: Mapped[float | None] = mapped_column(Float)
    peak_memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
