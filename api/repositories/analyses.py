"""Stored analyses of plans."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from api.tables import AnalysisRow

AnalysisKey = tuple[str, str, str, str]
"""Project, plan, kind of question, and what exactly was asked."""

AnalysisLease = tuple[datetime, datetime]


class AnalysisRepository:
    """The analyses of one project's plans."""

    def __init__(self, session: Session, project_id: str) -> None:
        self._session = session
        self._project_id = project_id

    def of_plan(self, plan_id: str) -> Sequence[AnalysisRow]:
        """Return all analyses of the plan, the newest first."""
        wanted = (
            select(AnalysisRow)
            .where(AnalysisRow.project_id == self._project_id, AnalysisRow.plan_id == plan_id)
            .order_by(AnalysisRow.created_at.desc())
        )
        return self._session.scalars(wanted).all()

    def get(self, plan_id: str, kind: str, asked: str) -> AnalysisRow | None:
        """Return the analysis of that kind and question."""
        return self._session.get(AnalysisRow, (self._project_id, plan_id, kind, asked))

    def add(self, row: AnalysisRow) -> None:
        """Store a new analysis."""
        self._session.add(row)
        self._session.flush()


class RunningAnalyses:
    """The analyses of all projects that are at work."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def change(self, key: AnalysisKey, *, started_at: datetime, **values: Any) -> bool:
        """Change an analysis that was started then; return whether it still is that one."""
        project_id, plan_id, kind, asked = key
        changed = self._session.execute(
            update(AnalysisRow)
            .where(
                AnalysisRow.project_id == project_id,
                AnalysisRow.plan_id == plan_id,
                AnalysisRow.kind == kind,
                AnalysisRow.asked == asked,
                AnalysisRow.state == "running",
                AnalysisRow.created_at == started_at,
            )
            .values(**values)
            .returning(AnalysisRow.plan_id)
        )
        return changed.first() is not None

    def leases(self) -> dict[AnalysisKey, AnalysisLease]:
        """Return them all, with when each was started, and the end of its lease."""
        wanted = select(
            AnalysisRow.project_id,
            AnalysisRow.plan_id,
            AnalysisRow.kind,
            AnalysisRow.asked,
            AnalysisRow.created_at,
            AnalysisRow.expires_at,
        ).where(AnalysisRow.state == "running")
        return {
            (project_id, plan_id, kind, asked): (started_at, end)
            for project_id, plan_id, kind, asked, started_at, end in self._session.execute(wanted)
        }
