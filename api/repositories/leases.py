"""Leases."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from sqlalchemy import or_, select, tuple_
from sqlalchemy.orm import Session

from api.tables import LeaseRow


class LeaseRepository:
    """Leases of all runs."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add_all(self, rows: Collection[LeaseRow]) -> None:
        """Store the leases of a gang."""
        self._session.add_all(rows)
        self._session.flush()

    def get(self, lease_id: str) -> LeaseRow | None:
        """Return the lease with that id."""
        return self._session.get(LeaseRow, lease_id)

    def locked(self, lease_id: str) -> LeaseRow:
        """Return the lease as it is now; nobody else changes it before this unit of work ends."""
        return self._session.scalars(
            select(LeaseRow)
            .where(LeaseRow.id == lease_id)
            .with_for_update()
            .execution_options(populate_existing=True)
        ).one()

    def live_of_agent(self, agent_id: str) -> LeaseRow | None:
        """Return the lease that the agent holds."""
        return self._session.scalar(
            select(LeaseRow).where(LeaseRow.agent_id == agent_id, LeaseRow.ended_at.is_(None))
        )

    def live_of_agents(self, agent_ids: Collection[str]) -> Sequence[LeaseRow]:
        """Return the leases that these agents hold."""
        return self._session.scalars(
            select(LeaseRow).where(LeaseRow.agent_id.in_(agent_ids), LeaseRow.ended_at.is_(None))
        ).all()

    def of_epoch(self, run_id: str, epoch: int) -> Sequence[LeaseRow]:
        """Return the run's leases of that epoch, by node."""
        return self._session.scalars(
            select(LeaseRow)
            .where(LeaseRow.run_id == run_id, LeaseRow.epoch == epoch)
            .order_by(LeaseRow.node_rank)
        ).all()

    def of_runs(self, keys: Collection[tuple[str, int]]) -> Sequence[LeaseRow]:
        """Return the leases of runs, each in its epoch, by node."""
        return self._session.scalars(
            select(LeaseRow)
            .where(tuple_(LeaseRow.run_id, LeaseRow.epoch).in_(keys))
            .order_by(LeaseRow.node_rank)
        ).all()

    def overdue(self, *, at: datetime, longest: timedelta) -> Sequence[LeaseRow]:
        """Return the live leases whose time has passed, or is further off than `longest`."""
        untrue = or_(LeaseRow.expires_at < at, LeaseRow.expires_at > at + longest)
        return self._session.scalars(
            select(LeaseRow).where(LeaseRow.ended_at.is_(None), untrue)
        ).all()
