"""Runs, the plans that they follow one after the other, and their history."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Boolean, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.metadata import SEQUENCE, Base, UtcDateTime


class RunRow(Base):
    """A run. `epoch` counts how often it was leased; leases of another epoch write nothing.

    `after_stop` says what is to follow once no lease is live; `lost_agents` who made it necessary.
    `sequence` orders runs by arrival, `queued_at` those that wait.
    """

    __tablename__ = "runs"
    __table_args__ = (
        Index("ix_runs_project_id", "project_id", "sequence"),
        Index("ix_runs_state", "state", "queued_at"),
        {"sqlite_autoincrement": True},
    )

    sequence: Mapped[int] = mapped_column(SEQUENCE, primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(String(64), unique=True)
    project_id: Mapped[str] = mapped_column(String(64), ForeignKey("projects.id"))
    state: Mapped[str] = mapped_column(String(16))
    plan_id: Mapped[str] = mapped_column(String(64))
    first_plan_id: Mapped[str] = mapped_column(String(64))
    command: Mapped[str] = mapped_column(String(100))
    arguments: Mapped[str] = mapped_column(Text)
    restart_limit: Mapped[int] = mapped_column(Integer)
    restart_count: Mapped[int] = mapped_column(Integer)
    replan: Mapped[bool] = mapped_column(Boolean)
    epoch: Mapped[int] = mapped_column(Integer)
    cancel_requested: Mapped[bool] = mapped_column(Boolean)
    after_stop: Mapped[str | None] = mapped_column(String(16))
    lost_agents: Mapped[str | None] = mapped_column(Text)
    master_address: Mapped[str | None] = mapped_column(String(253))
    master_port: Mapped[int | None] = mapped_column(Integer)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    queued_at: Mapped[datetime] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    reason: Mapped[str | None] = mapped_column(Text)
    waiting_for: Mapped[str | None] = mapped_column(Text)
    step: Mapped[int | None] = mapped_column(BigInteger)
    checkpoint_step: Mapped[int | None] = mapped_column(BigInteger)
    operation_id: Mapped[str | None] = mapped_column(String(64))


class RunPlanRow(Base):
    """The plan that a run follows from an epoch on, kept also where the plan is deleted."""

    __tablename__ = "run_plans"

    run_id: Mapped[str] = mapped_column(
        String(64), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True
    )
    from_epoch: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    plan_id: Mapped[str] = mapped_column(String(64))
    document: Mapped[str] = mapped_column(Text)


class RunEventRow(Base):
    """One entry of a run's history; `data` is the whole entry."""

    __tablename__ = "run_events"

    run_id: Mapped[str] = mapped_column(
        String(64), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    data: Mapped[str] = mapped_column(Text)
