"""Projects."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, String
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.metadata import Base, UtcDateTime


class ProjectRow(Base):
    """What separates teams: everything stored belongs to one project.

    `plan_changes` counts how often its plans, their names or tags have changed: what was made of
    them holds while it stays.
    """

    __tablename__ = "projects"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    plan_changes: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
