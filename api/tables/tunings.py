"""Tunings: what was asked, all trials, and the one under way."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Float, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.metadata import SEQUENCE, Base, UtcDateTime


class TuningRow(Base):
    """A tuning. `document` is all of it; what a list shows of it stands in columns before.

    A running one has a trial `under_way`, or a process works out what comes next: the one with
    `work_token`, which renews `work_expires_at` as `OperationRow.lease_expires_at` is.
    `begun_count` is how many trials there were when it was begun, or resumed, last.
    """

    __tablename__ = "tunings"
    __table_args__ = (
        Index("ix_tunings_project_id", "project_id", "sequence"),
        Index("ix_tunings_state", "state"),
        {"sqlite_autoincrement": True},
    )

    sequence: Mapped[int] = mapped_column(SEQUENCE, primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(String(64), unique=True)
    project_id: Mapped[str] = mapped_column(String(64), ForeignKey("projects.id"))
    state: Mapped[str] = mapped_column(String(16))
    model_name: Mapped[str] = mapped_column(String(200))
    cluster_name: Mapped[str] = mapped_column(String(200))
    command: Mapped[str] = mapped_column(String(100))
    arguments: Mapped[str] = mapped_column(Text)
    run_budget: Mapped[int] = mapped_column(Integer)
    step_budget: Mapped[int] = mapped_column(Integer)
    trial_count: Mapped[int] = mapped_column(Integer)
    begun_count: Mapped[int] = mapped_column(Integer)
    best_seconds: Mapped[float | None] = mapped_column(Float)
    faster_ratio: Mapped[float | None] = mapped_column(Float)
    best_plan_id: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    work_token: Mapped[str | None] = mapped_column(String(64))
    work_expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    under_way: Mapped[str | None] = mapped_column(Text)
    problem: Mapped[str | None] = mapped_column(Text)
    document: Mapped[str] = mapped_column(Text)
