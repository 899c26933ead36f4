"""Agents: enrolled, known by their tokens, listed, and given leases as they ask."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from api.caller import Caller
from api.cursors import foreign_cursor, identifier, identifier_cursor
from api.db import Database
from api.errors import AgentTokenError, NotFoundError, OtherAgentError
from api.repositories.agents import AgentRepository, EnrolmentTokenRepository
from api.repositories.audit import AuditRepository
from api.repositories.clock import current_time
from api.repositories.leases import LeaseRepository
from api.repositories.runs import RunRepository
from api.run_queries import AgentQuery
from api.services.gangs import Gangs
from api.services.intervals import intervals
from api.services.limits import RateLimits
from api.services.run_records import lease_document
from api.services.tokens import AGENT_PREFIX, ENROLMENT_PREFIX, new_token, token_hash
from api.services.waiting import WaitingAgents
from api.settings import Settings
from api.tables import AgentRow, EnrolmentTokenRow, LeaseRow
from planner.schema.agent import (
    Agent,
    AgentPage,
    AgentReport,
    Enrolment,
    EnrolmentRequest,
    EnrolmentToken,
    EnrolmentTokenRequest,
)
from planner.schema.lease import Lease

# An agent asks again as soon as a poll has ended; it is counted on for this much longer.
_BETWEEN_POLLS_SECONDS = 10.0


class AgentService:
    """What can be asked about agents, and what they ask for."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        gangs: Gangs,
        waiting: WaitingAgents,
        *,
        limits: RateLimits,
    ) -> None:
        self._database = database
        self._limits = limits
        self._gangs = gangs
        self._waiting = waiting
        self._intervals = intervals(settings)

    def make_enrolment_token(
        self, caller: Caller, request: EnrolmentTokenRequest
    ) -> EnrolmentToken:
        """Return a new one-time token of the caller's project; its text is in no other answer."""
        token = new_token(ENROLMENT_PREFIX)
        with self._database.writing() as session:
            at = current_time(session)
            row = EnrolmentTokenRow(
                id=f"enrolment-{uuid.uuid4().hex}",
                project_id=caller.project_id,
                token_hash=token_hash(token),
                note=request.note.replace("\0", " "),
                created_at=at,
                expires_at=at + timedelta(seconds=request.valid_seconds),
            )
            EnrolmentTokenRepository(session).add(row)
            AuditRepository(session).add(
                caller, action="enrolment_token.create", subject=row.id, details={"note": row.note}
            )
        return EnrolmentToken(id=row.id, token=token, note=row.note, expires_at=row.expires_at)

    def enrol(self, request: EnrolmentRequest, *, address: str) -> Enrolment:
        """Return the agent's id and token; its one-time token is used up in the same moment.

        Raises:
            AgentTokenError: if the one-time token is unknown, used or too old.
            RateLimitError: if too many tried to enrol from `address`.
        """
        self._limits.check_enrolment(address)
        token = new_token(AGENT_PREFIX)
        report = AgentReport.model_validate(request.model_dump(exclude={"enrolment_token"}))
        with self._database.writing() as session:
            at = current_time(session)
            hashed = token_hash(request.enrolment_token)
            project_id = EnrolmentTokenRepository(session).use(hashed, at=at)
            if project_id is None:
                raise AgentTokenError("the enrolment token is unknown, was used, or has expired")
            row = AgentRow(
                id=f"agent-{uuid.uuid4().hex}",
                project_id=project_id,
                name=_column_text(report.name),
                token_hash=token_hash(token),
                report=_stored(report),
                enrolled_at=at,
                last_seen_at=at,
            )
            AgentRepository(session).add(row)
            agent = Caller(project_id=project_id, name=row.name, scopes=frozenset(), key_id=None)
            AuditRepository(session).add(agent, action="agent.enrol", subject=row.id)
        return Enrolment(agent_id=row.id, token=token, intervals=self._intervals)

    def authenticated(self, token: str | None) -> str:
        """Return the id of the agent whose token it is.

        Raises:
            AgentTokenError: if it is none's.
            RateLimitError: if the agent asked too often.
        """
        if not token:
            raise AgentTokenError("give the agent's own token as `Authorization: Bearer TOKEN`")
        with self._database.reading() as session:
            row = AgentRepository(session).holding(token_hash(token))
        if row is None:
            raise AgentTokenError("the token is no agent's, or was withdrawn; enrol again")
        self._limits.check_agent(row.id)
        return row.id

    def report(self, holder_id: str, agent_id: str, report: AgentReport) -> Agent:
        """Replace what the agent says of itself.

        Raises:
            OtherAgentError: if the token is another agent's.
        """
        _check_same(holder_id, agent_id)
        with self._database.writing() as session:
            row = _found(session, agent_id)
            row.name, row.report = _column_text(report.name), _stored(report)
            row.last_seen_at = current_time(session)
            session.flush()
            return _agent(row, LeaseRepository(session).live_of_agent(agent_id), row.last_seen_at)

    async def next_lease(
        self, holder_id: str, agent_id: str, *, wait_seconds: float
    ) -> Lease | None:
        """Return the lease that the agent holds as soon as there is one, or nothing after the wait.

        Raises:
            OtherAgentError: if the token is another agent's.
        """
        _check_same(holder_id, agent_id)
        with self._waiting.place(agent_id) as place:
            lease = await run_in_threadpool(self._asked, agent_id, wait_seconds)
            if lease is None and await place.woken(wait_seconds):
                lease = await run_in_threadpool(self._held, agent_id)
        return lease

    def list(self, caller: Caller, query: AgentQuery) -> AgentPage:
        """Return a page of the project's agents, by name.

        Raises:
            InputError: if the cursor is none of ours.
        """
        with self._database.reading() as session:
            after = None
            if query.cursor is not None:
                after = session.get(AgentRow, identifier(query.cursor))
                if after is None or after.project_id != caller.project_id:
                    raise foreign_cursor(query.cursor)
            rows = AgentRepository(session).page(
                caller.project_id, after=after, limit=query.limit + 1
            )
            page = rows[: query.limit]
            more = identifier_cursor(page[-1].id) if len(rows) > query.limit else None
            return AgentPage(items=_agents(session, page), next_cursor=more)

    def of_project(self, caller: Caller) -> tuple[Agent, ...]:
        """Return all of the project's agents, by name."""
        with self._database.reading() as session:
            return _agents(session, AgentRepository(session).of_project(caller.project_id))

    def get(self, caller: Caller, agent_id: str) -> Agent:
        """Return the agent.

        Raises:
            NotFoundError: if the caller's project has none with that id.
        """
        with self._database.reading() as session:
            row = _found(session, agent_id, project_id=caller.project_id)
            lease = LeaseRepository(session).live_of_agent(agent_id)
            return _agent(row, lease, current_time(session))

    def revoke(self, caller: Caller, agent_id: str) -> None:
        """Make the agent's token void; what it runs is lost when its lease expires.

        Raises:
            NotFoundError: if the caller's project has none with that id.
        """
        with self._database.writing() as session:
            at = current_time(session)
            agents = AgentRepository(session)
            if not agents.revoke(agent_id, project_id=caller.project_id, at=at):
                raise NotFoundError("agent", agent_id)
            AuditRepository(session).add(caller, action="agent.revoke", subject=agent_id)

    def _asked(self, agent_id: str, wait_seconds: float) -> Lease | None:
        """Count on the agent while it waits, and lease what was waiting for it."""
        lease = self._held(agent_id)
        if lease is not None:
            return lease
        with self._database.writing() as session:
            at = current_time(session)
            until = at + timedelta(seconds=wait_seconds + _BETWEEN_POLLS_SECONDS)
            AgentRepository(session).heard_of(agent_id, at=at, available_until=until)
            project_id = _found(session, agent_id).project_id
        self._gangs.lease_queued(project_id)
        return self._held(agent_id)

    def _held(self, agent_id: str) -> Lease | None:
        with self._database.reading() as session:
            lease = LeaseRepository(session).live_of_agent(agent_id)
            if lease is None:
                return None
            runs = RunRepository(session)
            run = runs.get(lease.run_id)
            if run is None:
                return None
            plan = runs.plan_of(run.id, lease.epoch)
            return lease_document(lease, run, plan, self._intervals)


def _check_same(holder_id: str, agent_id: str) -> None:
    if holder_id != agent_id:
        raise OtherAgentError(agent_id)


def _found(session: Session, agent_id: str, *, project_id: str | None = None) -> AgentRow:
    row = session.get(AgentRow, agent_id)
    if row is None or row.revoked_at is not None or project_id not in {None, row.project_id}:
        raise NotFoundError("agent", agent_id)
    return row


def _stored(report: AgentReport) -> str:
    return report.model_dump_json()


def _column_text(name: str) -> str:
    return name.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _agents(session: Session, rows: Sequence[AgentRow]) -> tuple[Agent, ...]:
    at = current_time(session)
    held = LeaseRepository(session).live_of_agents([row.id for row in rows])
    leases = {lease.agent_id: lease for lease in held}
    return tuple(_agent(row, leases.get(row.id), at) for row in rows)


def _agent(row: AgentRow, lease: LeaseRow | None, at: datetime) -> Agent:
    idle = row.available_until is not None and row.available_until > at
    return Agent.model_validate(
        {
            "id": row.id,
            "state": "busy" if lease is not None else "idle" if idle else "away",
            "report": AgentReport.model_validate_json(row.report),
            "enrolled_at": row.enrolled_at,
            "last_seen_at": row.last_seen_at,
            "lease_id": None if lease is None else lease.id,
            "run_id": None if lease is None else lease.run_id,
        }
    )
