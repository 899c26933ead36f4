"""Gangs: a queued run leased to all of its agents at once, or to none.

One transaction claims the run and the agents. On PostgreSQL both are locked and what others lock is
skipped; on SQLite the transaction holds the write lock from its start. A unique index allows an
agent one live lease, whatever else happens.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from api.db import Database
from api.repositories.agents import AgentRepository
from api.repositories.clock import current_time
from api.repositories.leases import LeaseRepository
from api.repositories.runs import RunRepository
from api.services.placement import (
    Assignment,
    Candidate,
    agents_towards,
    assignments,
    candidate,
    shortfall,
)
from api.services.run_moves import move, tell
from api.settings import Settings
from api.tables import AgentRow, LeaseRow, RunRow
from planner.schema.agent import AgentReport
from planner.schema.lifecycle import Actor, LeaseState, RunState
from planner.schema.plan import Plan

# Ports that IANA leaves to applications and Linux does not hand out by itself (32768 and up).
_FIRST_PORT, _LAST_PORT = 20_000, 32_000


class Gangs:
    """Leases queued runs; `woken` is told which agents have something to fetch."""

    def __init__(
        self, database: Database, settings: Settings, *, woken: Callable[[Collection[str]], None]
    ) -> None:
        self._database = database
        self._settings = settings
        self._woken = woken
        self._patience = timedelta(seconds=settings.reserve_after_seconds)
        self._tried: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    def lease_queued(self, project_id: str) -> None:
        """Lease each queued run of a project that finds its agents, the longest waiting first.

        A small run may overtake one that waits for more agents, until that one has waited so long
        that agents are kept for it.
        """
        with self._database.reading() as session:
            waiting = RunRepository(session).ids_in(RunState.QUEUED, project_id=project_id)
        for run_id in waiting:
            self.lease(run_id)

    def lease_queued_anew(self) -> None:
        """Lease queued runs of all projects if other runs or agents wait than at the last time."""
        with self._database.reading() as session:
            waiting = tuple(RunRepository(session).ids_in(RunState.QUEUED))
            idle = tuple(AgentRepository(session).idle_ids(at=current_time(session)))
        if (waiting, idle) == self._tried:
            return
        for run_id in waiting:
            self.lease(run_id)
        self._tried = (waiting, idle)

    def lease(self, run_id: str) -> bool:
        """Lease the run if it is queued and all of its agents are idle; return whether it was."""
        with self._database.writing() as session:
            run = RunRepository(session).claimed(run_id, state=RunState.QUEUED)
            agent_ids = [] if run is None else self._claim(session, run)
        if agent_ids:
            self._woken(agent_ids)
        return bool(agent_ids)

    def _claim(self, session: Session, run: RunRow) -> list[str]:
        """Return the agents that the run is leased to now."""
        at = current_time(session)
        plan = next_plan(session, run)
        idle = idle_candidates(session, run.project_id, at=at)
        kept = reserved(session, run, idle, at=at, patience=self._patience)
        free = [agent for agent in idle if agent.agent_id not in kept]
        placed = assignments(plan, free, command=run.command)
        if placed is None:
            waiting_for = shortfall(plan, free, command=run.command)
            if kept:
                waiting_for += f"; {len(kept)} idle agents are kept for a run that waits longer"
            if run.waiting_for != waiting_for:
                run.waiting_for = waiting_for
            return []
        self._offer(session, run, placed, at=at)
        return [assignment.candidate.agent_id for assignment in placed]

    def _offer(
        self, session: Session, run: RunRow, placed: Sequence[Assignment], *, at: datetime
    ) -> None:
        run.epoch += 1
        run.started_at = run.started_at or at
        run.lost_agents = None
        run.master_address = placed[0].candidate.address
        run.master_port = random.randint(_FIRST_PORT, _LAST_PORT)  # noqa: S311 - no secret
        acknowledged_by = at + timedelta(seconds=self._settings.agent_acknowledge_seconds)
        rows = [_lease_row(run, part, offered_at=at) for part in placed]
        for row in rows:
            row.expires_at = acknowledged_by
            row.node_count = placed[-1].node_rank + placed[-1].node_span
        LeaseRepository(session).add_all(rows)
        names = AgentRepository(session).named([part.candidate.agent_id for part in placed])
        text = ", ".join(
            f"node {part.node_rank} on agent {names[part.candidate.agent_id]}" for part in placed
        )
        tell(session, run, kind="leased", text=f"attempt {run.epoch}: {text}", at=at)
        text = f"attempt {run.epoch} is being prepared"
        move(session, run, RunState.STARTING, actor=Actor.SERVICE, text=text, at=at)


def next_plan(session: Session, run: RunRow) -> Plan:
    """Return the plan that the run follows when it is leased the next time."""
    row = RunRepository(session).plan_of(run.id, run.epoch + 1)
    return Plan.model_validate_json(row.document)


def idle_candidates(session: Session, project_id: str, *, at: datetime) -> list[Candidate]:
    """Return the project's idle agents, locked."""
    rows = AgentRepository(session).idle(project_id, at=at)
    return [stored_candidate(row) for row in rows]


def reserved(
    session: Session, run: RunRow, idle: Sequence[Candidate], *, at: datetime, patience: timedelta
) -> frozenset[str]:
    """Return the idle agents that are kept for a run which has waited for longer than `patience`.

    Only one run at a time has agents kept for it: the first in the queue before `run` whose needs
    the project's agents could meet if all were idle. What nobody could meet holds nobody up.
    """
    for ahead in RunRepository(session).waiting_before(run, since=at - patience):
        plan = next_plan(session, ahead)
        everybody = [*idle, *busy_candidates(session, run.project_id)]
        if assignments(plan, everybody, command=ahead.command) is not None:
            return agents_towards(plan, idle, command=ahead.command)
    return frozenset()


def busy_candidates(session: Session, project_id: str) -> list[Candidate]:
    """Return the project's agents that hold leases."""
    return [stored_candidate(row) for row in AgentRepository(session).busy(project_id)]


def stored_candidate(row: AgentRow) -> Candidate:
    """Return what placement needs to know of an agent, from its report."""
    return candidate(row.id, AgentReport.model_validate_json(row.report))


def _lease_row(run: RunRow, part: Assignment, *, offered_at: datetime) -> LeaseRow:
    return LeaseRow(
        id=f"lease-{uuid.uuid4().hex}",
        run_id=run.id,
        agent_id=part.candidate.agent_id,
        epoch=run.epoch,
        node_rank=part.node_rank,
        node_span=part.node_span,
        first_rank=part.first_rank,
        rank_count=part.rank_count,
        state=LeaseState.OFFERED.value,
        offered_at=offered_at,
        log_offset=0,
        metric_sequence=0,
    )
