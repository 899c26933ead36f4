"""Plans."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.metadata import SEQUENCE, Base, UtcDateTime


class PlanRow(Base):
    """An answer: a plan or an infeasible job. `sequence` orders them by arrival.

    `id` follows from the request, so that two projects may each have a plan of the same id.
    """

    __tablename__ = "plans"
    __table_args__ = (
        UniqueConstraint("project_id", "id", name="uq_plans_project_id_id"),
        UniqueConstraint("project_id", "request_digest", name="uq_plans_project_id_request_digest"),
        Index("ix_plans_project_id", "project_id", "sequence"),
        Index("ix_plans_model_name", "project_id", "model_name", "sequence"),
        Index("ix_plans_cluster_name", "project_id", "cluster_name", "sequence"),
        {"sqlite_autoincrement": True},
    )

    sequence: Mapped[int] = mapped_column(SEQUENCE, primary_key=True, autoincrement=True)
    project_id: Mapped[str] = mapped_column(String(64), ForeignKey("projects.id"))
    id: Mapped[str] = mapped_column(String(64))
    request_digest: Mapped[str] = mapped_column(String(64))
    status: Mapped[str] = mapped_column(String(16))
    model_name: Mapped[str] = mapped_column(String(200))
    cluster_name: Mapped[str] = mapped_column(String(200))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    etag: Mapped[str] = mapped_column(String(64))
    summary: Mapped[str] = mapped_column(Text)
    document: Mapped[str] = mapped_column(Text)
