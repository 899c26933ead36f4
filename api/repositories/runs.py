"""Runs, their plans and their history."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from api.tables import RunEventRow, RunPlanRow, RunRow

# How many of those that wait are looked at for one that agents are to be kept for.
_AHEAD_LIMIT = 16


class RunRepository:
    """Runs of all projects: agents and the service itself serve them all."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, row: RunRow) -> None:
        """Store a new run."""
        self._session.add(row)
        self._session.flush()

    def get(self, run_id: str) -> RunRow | None:
        """Return the run with that id."""
        return self._session.scalar(select(RunRow).where(RunRow.id == run_id))

    def locked(self, run_id: str) -> RunRow:
        """Return the run as it is now; nobody else changes it before this unit of work ends."""
        return self._session.scalars(
            select(RunRow)
            .where(RunRow.id == run_id)
            .with_for_update()
            .execution_options(populate_existing=True)
        ).one()

    def claimed(self, run_id: str, *, state: str) -> RunRow | None:
        """Return the run, locked, unless it left `state` or somebody else is at it."""
        return self._session.scalar(
            select(RunRow)
            .where(RunRow.id == run_id, RunRow.state == state)
            .with_for_update(skip_locked=True)
            .execution_options(populate_existing=True)
        )

    def ids_in(self, state: str, *, project_id: str | None = None) -> Sequence[str]:
        """Return the runs in that state, the one that has waited longest first."""
        wanted = select(RunRow.id).where(RunRow.state == state)
        if project_id is not None:
            wanted = wanted.where(RunRow.project_id == project_id)
        return self._session.scalars(wanted.order_by(RunRow.queued_at, RunRow.sequence)).all()

    def ids_shrunk(self) -> Sequence[str]:
        """Return the runs under way that may be replanned and do not follow their first plan."""
        return self._session.scalars(
            select(RunRow.id)
            .where(
                RunRow.state == "running",
                RunRow.replan.is_(True),
                RunRow.plan_id != RunRow.first_plan_id,
            )
            .order_by(RunRow.sequence)
        ).all()

    def waiting_before(self, run: RunRow, *, since: datetime) -> Sequence[RunRow]:
        """Return the queued runs of its project ahead of `run` that have waited `since` then."""
        return self._session.scalars(
            select(RunRow)
            .where(
                RunRow.state == "queued",
                RunRow.project_id == run.project_id,
                RunRow.id != run.id,
                RunRow.queued_at <= since,
                or_(
                    RunRow.queued_at < run.queued_at,
                    and_(RunRow.queued_at == run.queued_at, RunRow.sequence < run.sequence),
                ),
            )
            .order_by(RunRow.queued_at, RunRow.sequence)
            .limit(_AHEAD_LIMIT)
        ).all()

    def page(
        self,
        project_id: str,
        *,
        state: str | None,
        plan_id: str | None,
        before: int | None,
        limit: int,
    ) -> Sequence[RunRow]:
        """Return at most `limit` runs that match, the newest first, older than `before`."""
        wanted = select(RunRow).where(RunRow.project_id == project_id)
        if state is not None:
            wanted = wanted.where(RunRow.state == state)
        if plan_id is not None:
            wanted = wanted.where((RunRow.plan_id == plan_id) | (RunRow.first_plan_id == plan_id))
        if before is not None:
            wanted = wanted.where(RunRow.sequence < before)
        return self._session.scalars(wanted.order_by(RunRow.sequence.desc()).limit(limit)).all()

    def add_plan(self, row: RunPlanRow) -> None:
        """Have the run follow another plan from an epoch on."""
        self._session.merge(row)
        self._session.flush()

    def plans(self, run_id: str) -> Sequence[RunPlanRow]:
        """Return the plans that the run followed, in order."""
        return self._session.scalars(
            select(RunPlanRow).where(RunPlanRow.run_id == run_id).order_by(RunPlanRow.from_epoch)
        ).all()

    def plan_of(self, run_id: str, epoch: int) -> RunPlanRow:
        """Return the plan that the run follows in that epoch."""
        return self._session.scalars(
            select(RunPlanRow)
            .where(RunPlanRow.run_id == run_id, RunPlanRow.from_epoch <= epoch)
            .order_by(RunPlanRow.from_epoch.desc())
            .limit(1)
        ).one()

    def next_event_number(self, run_id: str) -> int:
        """Return the number of the next entry of the run's history; the run is locked."""
        last = self._session.scalar(
            select(func.max(RunEventRow.number)).where(RunEventRow.run_id == run_id)
        )
        return (last or 0) + 1

    def add_event(self, row: RunEventRow) -> None:
        """Append an entry to the run's history."""
        self._session.add(row)
        self._session.flush()

    def events(self, run_id: str, *, after: int) -> Sequence[RunEventRow]:
        """Return the entries of the run's history numbered above `after`, in order."""
        return self._session.scalars(
            select(RunEventRow)
            .where(RunEventRow.run_id == run_id, RunEventRow.number > after)
            .order_by(RunEventRow.number)
        ).all()
