"""Plans and their tags."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import (
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.metadata import SEQUENCE, Base, UtcDateTime

SORTED_FIGURES = (
    "step_seconds",
    "tokens_per_second_per_device",
    "model_flop_utilization",
    "peak_memory_bytes",
    "cost_per_million_tokens",
)


class PlanRow(Base):
    """An answer: a plan or an infeasible job. `sequence` orders them by arrival.

    `id` follows from the request, so that two projects may each have a plan of the same id. What
    the table of plans is sorted by and searched in stands before the long texts, because SQLite
    reads a row from its start; an infeasible answer has none of the figures. `sorted_name` is what
    the table shows first, the name that a user gave or the model's, in one case.
    """

    __tablename__ = "plans"
    __table_args__ = (
        UniqueConstraint("project_id", "id", name="uq_plans_project_id_id"),
        UniqueConstraint("project_id", "request_digest", name="uq_plans_project_id_request_digest"),
        Index("ix_plans_project_id", "project_id", "sequence"),
        Index("ix_plans_model_name", "project_id", "model_name", "sequence"),
        Index("ix_plans_cluster_name", "project_id", "cluster_name", "sequence"),
        Index("ix_plans_sorted_name", "project_id", "sorted_name", "sequence"),
        *(Index(f"ix_plans_{name}", "project_id", name, "sequence") for name in SORTED_FIGURES),
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
    step_seconds: Mapped[float | None] = mapped_column(Float)
    tokens_per_second_per_device: Mapped[float | None] = mapped_column(Float)
    model_flop_utilization: Mapped[float | None] = mapped_column(Float)
    peak_memory_bytes: Mapped[float | None] = mapped_column(Float)
    cost_per_million_tokens: Mapped[float | None] = mapped_column(Float)
    searched_text: Mapped[str] = mapped_column(Text, server_default="")
    sorted_name: Mapped[str] = mapped_column(String(200), server_default="")
    summary: Mapped[str] = mapped_column(Text)
    document: Mapped[str] = mapped_column(Text)
    notes: Mapped[str] = mapped_column(Text, server_default="")


class PlanTagRow(Base):
    """One tag of a plan, for lists of the plans that have it; summaries hold them as well."""

    __tablename__ = "plan_tags"
    __table_args__ = (
        ForeignKeyConstraint(
            ["project_id", "plan_id"],
            ["plans.project_id", "plans.id"],
            name="fk_plan_tags_project_id_plans",
            ondelete="CASCADE",
        ),
        Index("ix_plan_tags_tag", "project_id", "tag", "plan_id"),
    )

    project_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    plan_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    tag: Mapped[str] = mapped_column(String(40), primary_key=True)
