"""Analyses: what was worked out about a plan after it was made."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKeyConstraint, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.metadata import Base, UtcDateTime


class AnalysisRow(Base):
    """One question about a plan: of a kind, with what exactly was asked, and its answer.

    The process that works on it renews `expires_at`, as `OperationRow.lease_expires_at` is.
    """

    __tablename__ = "analyses"
    __table_args__ = (
        ForeignKeyConstraint(
            ["project_id", "plan_id"],
            ["plans.project_id", "plans.id"],
            name="fk_analyses_project_id_plans",
            ondelete="CASCADE",
        ),
    )

    project_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    plan_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    asked: Mapped[str] = mapped_column(String(200), primary_key=True)
    state: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    progress: Mapped[str | None] = mapped_column(Text)
    document: Mapped[str | None] = mapped_column(Text)
    problem: Mapped[str | None] = mapped_column(Text)
