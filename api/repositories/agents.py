"""Agents and enrolment tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import Select, select, update
from sqlalchemy.orm import Session

from api.tables import AgentRow, EnrolmentTokenRow, LeaseRow


class EnrolmentTokenRepository:
    """One-time tokens of all projects: who has one is known by it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, row: EnrolmentTokenRow) -> None:
        """Store a new token's hash."""
        self._session.add(row)
        self._session.flush()

    def use(self, token_hash: str, *, at: datetime) -> str | None:
        """Mark the token used and return its project, unless it was used, is old, or unknown."""
        used = self._session.execute(
            update(EnrolmentTokenRow)
            .where(
                EnrolmentTokenRow.token_hash == token_hash,
                EnrolmentTokenRow.used_at.is_(None),
                EnrolmentTokenRow.expires_at > at,
            )
            .values(used_at=at)
            .returning(EnrolmentTokenRow.project_id)
        )
        return used.scalar()


class AgentRepository:
    """Agents; those that were revoked are not found."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, row: AgentRow) -> None:
        """Store a new agent."""
        self._session.add(row)
        self._session.flush()

    def holding(self, token_hash: str) -> AgentRow | None:
        """Return the agent whose token has that hash."""
        return self._session.scalar(
            select(AgentRow).where(AgentRow.token_hash == token_hash, AgentRow.revoked_at.is_(None))
        )

    def named(self, agent_ids: Collection[str]) -> dict[str, str]:
        """Return the names of agents by id, of revoked ones as well."""
        rows = self._session.execute(
            select(AgentRow.id, AgentRow.name).where(AgentRow.id.in_(agent_ids))
        )
        return {row.id: row.name for row in rows}

    def of_ids(self, agent_ids: Collection[str]) -> Sequence[AgentRow]:
        """Return these agents but the revoked, by name."""
        return self._session.scalars(
            select(AgentRow)
            .where(AgentRow.id.in_(agent_ids), AgentRow.revoked_at.is_(None))
            .order_by(AgentRow.name, AgentRow.id)
        ).all()

    def of_project(self, project_id: str) -> Sequence[AgentRow]:
        """Return the project's agents, by name."""
        return self._session.scalars(_by_name(project_id)).all()

    def page(self, project_id: str, *, after: AgentRow | None, limit: int) -> Sequence[AgentRow]:
        """Return at most `limit` of the project's agents, by name, that come after `after`."""
        wanted = _by_name(project_id)
        if after is not None:
            behind, alike = AgentRow.name > after.name, AgentRow.name == after.name
            wanted = wanted.where(behind | (alike & (AgentRow.id > after.id)))
        return self._session.scalars(wanted.limit(limit)).all()

    def idle(self, project_id: str, *, at: datetime) -> Sequence[AgentRow]:
        """Return, locked, the agents that may be leased; those that another claims are skipped."""
        live = select(LeaseRow.agent_id).where(LeaseRow.ended_at.is_(None))
        return self._session.scalars(
            select(AgentRow)
            .where(
                AgentRow.project_id == project_id,
                AgentRow.revoked_at.is_(None),
                AgentRow.available_until > at,
                AgentRow.id.not_in(live),
            )
            .order_by(AgentRow.name, AgentRow.id)
            .with_for_update(skip_locked=True)
            .execution_options(populate_existing=True)
        ).all()

    def busy(self, project_id: str) -> Sequence[AgentRow]:
        """Return the agents that hold leases."""
        live = select(LeaseRow.agent_id).where(LeaseRow.ended_at.is_(None))
        return self._session.scalars(
            select(AgentRow).where(
                AgentRow.project_id == project_id,
                AgentRow.revoked_at.is_(None),
                AgentRow.id.in_(live),
            )
        ).all()

    def idle_ids(self, *, at: datetime) -> Sequence[str]:
        """Return the agents of all projects that may be leased."""
        live = select(LeaseRow.agent_id).where(LeaseRow.ended_at.is_(None))
        return self._session.scalars(
            select(AgentRow.id)
            .where(AgentRow.available_until > at, AgentRow.id.not_in(live))
            .order_by(AgentRow.id)
        ).all()

    def heard_of(self, agent_id: str, *, at: datetime, available_until: datetime | None) -> None:
        """Note that the agent lives, and until when it may be leased."""
        self._session.execute(
            update(AgentRow)
            .where(AgentRow.id == agent_id)
            .values(last_seen_at=at, available_until=available_until)
        )

    def withdraw(self, agent_ids: Collection[str]) -> None:
        """Lease nothing to these agents until they are heard of again."""
        self._session.execute(
            update(AgentRow).where(AgentRow.id.in_(agent_ids)).values(available_until=None)
        )

    def revoke(self, agent_id: str, *, project_id: str, at: datetime) -> bool:
        """Make the agent's token void; return whether there was such an agent."""
        revoked = self._session.execute(
            update(AgentRow)
            .where(
                AgentRow.id == agent_id,
                AgentRow.project_id == project_id,
                AgentRow.revoked_at.is_(None),
            )
            .values(revoked_at=at, available_until=None)
            .returning(AgentRow.id)
        )
        return revoked.first() is not None


def _by_name(project_id: str) -> Select[AgentRow]:
    return (
        select(AgentRow)
        .where(AgentRow.project_id == project_id, AgentRow.revoked_at.is_(None))
        .order_by(AgentRow.name, AgentRow.id)
    )
