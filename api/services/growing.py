"""Growing: a run that goes on with fewer devices gets its first plan back when they are idle again.

It is stopped as for a restart, and goes on from its newest checkpoint. What it gains is the first
plan's step time for the rest of the run; what it loses is the way from that checkpoint on.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from api.db import Database
from api.repositories.agents import AgentRepository
from api.repositories.clock import current_time
from api.repositories.leases import LeaseRepository
from api.repositories.runs import RunRepository
from api.services.gangs import idle_candidates, stored_candidate
from api.services.placement import assignments
from api.services.replanning import follow
from api.services.run_moves import AfterStop, move
from api.settings import Settings
from api.tables import RunRow
from planner.schema.lifecycle import Actor, RunState
from planner.schema.plan import Plan


class Growing:
    """Looks for runs that could have their first plan again."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._patience = timedelta(seconds=settings.grow_after_seconds)

    def look(self) -> None:
        """Stop each run that can grow, to be leased under its first plan."""
        with self._database.reading() as session:
            shrunk = RunRepository(session).ids_shrunk()
        for run_id in shrunk:
            self._grow(run_id)

    def _grow(self, run_id: str) -> None:
        with self._database.writing() as session:
            run = RunRepository(session).claimed(run_id, state=RunState.RUNNING)
            at = current_time(session)
            if run is None or not self._may_grow(session, run, at):
                return
            first = RunRepository(session).plan_of(run.id, 1)
            plan = Plan.model_validate_json(first.document)
            follow(session, run, plan, document=first.document, at=at)
            run.after_stop = AfterStop.RESUME.value
            run.reason = "the devices of its first plan are idle again"
            move(session, run, RunState.STOPPING, actor=Actor.SERVICE, text=run.reason, at=at)

    def _may_grow(self, session: Session, run: RunRow, at: datetime) -> bool:
        """Return whether it would be worth it, and nobody else waits for those agents."""
        runs, leases = RunRepository(session), LeaseRepository(session).of_epoch(run.id, run.epoch)
        if min(lease.offered_at for lease in leases) + self._patience > at:
            return False
        if all(lease.checkpoint_step is None for lease in leases):
            return False
        if runs.ids_in(RunState.QUEUED, project_id=run.project_id):
            return False
        first = Plan.model_validate_json(runs.plan_of(run.id, 1).document)
        held = AgentRepository(session).of_ids([lease.agent_id for lease in leases])
        idle = idle_candidates(session, run.project_id, at=at)
        agents = [*idle, *(stored_candidate(row) for row in held)]
        return assignments(first, agents, command=run.command) is not None
