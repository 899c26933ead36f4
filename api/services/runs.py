"""Runs as people see them: asked for, listed, followed, cancelled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence

from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from api.caller import Caller
from api.cursors import cursor, position
from api.db import Database, settled
from api.errors import AlreadyFinishedError, NotFoundError
from api.repositories.agents import AgentRepository
from api.repositories.audit import AuditRepository
from api.repositories.clock import current_time
from api.repositories.leases import LeaseRepository
from api.repositories.plans import PlanRepository
from api.repositories.runs import RunRepository
from api.run_queries import RunQuery
from api.services.gangs import Gangs
from api.services.identifiers import identifier_of_key, new_identifier
from api.services.records import StoredPlan, stored_plan
from api.services.run_arguments import check_arguments
from api.services.run_moves import move, settle, tell
from api.services.run_records import event_document, run_document
from api.tables import RunPlanRow, RunRow
from planner.errors import InputError
from planner.schema.agent import AgentReport
from planner.schema.lifecycle import FINAL_RUN_STATES, Actor, RunState
from planner.schema.plan import Plan
from planner.schema.run import Run, RunEvent, RunHistory, RunPage, RunRequest

_POLL_SECONDS = 0.5
_AT_ONCE = frozenset({RunState.QUEUED, RunState.REPLANNING})


class RunService:
    """What can be asked about runs; any process of the service can answer."""

    def __init__(self, database: Database, gangs: Gangs) -> None:
        self._database = database
        self._gangs = gangs

    def create(
        self, caller: Caller, request: RunRequest, *, idempotency_key: str | None = None
    ) -> Run:
        """Queue a run of a plan, and return it; the same key again returns the same run.

        Raises:
            NotFoundError: if the caller's project has no such plan.
            InputError: if it is an infeasible answer, or agents would refuse the arguments.
            KeyReusedError: if the key stands for another request.
        """
        run_id = settled(lambda: self._create(caller, request, idempotency_key))
        self._gangs.lease(run_id)
        return self.get(caller, run_id)

    def get(self, caller: Caller, run_id: str) -> Run:
        """Return the run.

        Raises:
            NotFoundError: if the caller's project has none with that id.
        """
        with self._database.reading() as session:
            return _documents(session, [found_run(session, run_id, caller)])[0]

    def list(self, caller: Caller, query: RunQuery | None = None) -> RunPage:
        """Return a page of the project's runs, the newest first.

        Raises:
            InputError: if the cursor is none of ours.
        """
        query = query or RunQuery()
        before = None if query.cursor is None else position(query.cursor)
        with self._database.reading() as session:
            rows = RunRepository(session).page(
                caller.project_id,
                state=query.state,
                plan_id=query.plan_id,
                before=before,
                limit=query.limit + 1,
            )
            page = rows[: query.limit]
            more = cursor(page[-1].sequence) if len(rows) > query.limit else None
            return RunPage(items=tuple(_documents(session, page)), next_cursor=more)

    def cancel(self, caller: Caller, run_id: str) -> Run:
        """Have the run end; cancelling twice is the same as once.

        What is not leased ends at once; agents learn of it with their next heartbeat.

        Raises:
            NotFoundError: if the caller's project has none with that id.
            AlreadyFinishedError: if it has ended otherwise.
        """
        with self._database.writing() as session:
            found_run(session, run_id, caller)
            run = RunRepository(session).locked(run_id)
            if run.state in FINAL_RUN_STATES - {RunState.CANCELLED}:
                raise AlreadyFinishedError(f"run {run_id}", run.state)
            cancel_run(session, caller, run)
            session.flush()
            return _documents(session, [run])[0]

    def history(self, caller: Caller, run_id: str) -> RunHistory:
        """Return all that happened to the run.

        Raises:
            NotFoundError: if the caller's project has none with that id.
        """
        with self._database.reading() as session:
            found_run(session, run_id, caller)
            rows = RunRepository(session).events(run_id, after=0)
            return RunHistory(items=tuple(event_document(row) for row in rows))

    async def follow(
        self, caller: Caller, run_id: str, *, after: int = 0
    ) -> AsyncIterator[RunEvent | Run]:
        """Yield the run whenever it has changed, and its history above `after`, until it ends."""
        shown: Run | None = None
        finished = False
        while not finished:
            run, events = await run_in_threadpool(self._news, caller, run_id, after)
            for event in events:
                yield event
                after = event.number
            if run != shown:
                shown = run
                yield run
            finished = run.state in FINAL_RUN_STATES
            if not finished:
                await asyncio.sleep(_POLL_SECONDS)

    def _news(self, caller: Caller, run_id: str, after: int) -> tuple[Run, Sequence[RunEvent]]:
        """Return the run, and then its entries: once it has ended none can be missed."""
        with self._database.reading() as session:
            run = _documents(session, [found_run(session, run_id, caller)])[0]
            rows = RunRepository(session).events(run_id, after=after)
            return run, [event_document(row) for row in rows]

    def _create(self, caller: Caller, request: RunRequest, key: str | None) -> str:
        run_id = new_identifier("run")
        with self._database.writing() as session:
            if key is not None:
                run_id = identifier_of_key(session, caller, request, key=key, kind="run")
                if RunRepository(session).get(run_id) is not None:
                    return run_id
            stored = _planned(session, caller, request.plan_id)
            reports = agent_reports(session, caller.project_id)
            check_arguments(request.command, request.arguments, reports)
            queue_run(session, caller, request, run_id=run_id, document=stored.document_json)
        return run_id


def agent_reports(session: Session, project_id: str) -> list[AgentReport]:
    """Return what the project's agents say of themselves."""
    agents = AgentRepository(session).of_project(project_id)
    return [AgentReport.model_validate_json(agent.report) for agent in agents]


def queue_run(
    session: Session, caller: Caller, request: RunRequest, *, run_id: str, document: str
) -> None:
    """Queue a run of the plan in `document`; agents find it when they ask next."""
    at = current_time(session)
    row = RunRow(
        id=run_id,
        project_id=caller.project_id,
        state=RunState.QUEUED.value,
        plan_id=request.plan_id,
        first_plan_id=request.plan_id,
        command=request.command,
        arguments=json.dumps(request.model_dump(mode="json")["arguments"]),
        restart_limit=request.restart_limit,
        restart_count=0,
        replan=request.replan,
        epoch=0,
        cancel_requested=False,
        created_at=at,
        queued_at=at,
    )
    runs = RunRepository(session)
    runs.add(row)
    runs.add_plan(
        RunPlanRow(run_id=run_id, from_epoch=1, plan_id=request.plan_id, document=document)
    )
    text = f"asked for by {caller.name}"
    tell(session, row, kind="state", text=text, at=at, state=RunState.QUEUED)
    details = {"plan_id": request.plan_id, "command": request.command}
    AuditRepository(session).add(caller, action="run.create", subject=run_id, details=details)


def found_run(session: Session, run_id: str, caller: Caller) -> RunRow:
    """Return the run.

    Raises:
        NotFoundError: if the caller's project has none with that id.
    """
    row = RunRepository(session).get(run_id)
    if row is None or row.project_id != caller.project_id:
        raise NotFoundError("run", run_id)
    return row


def cancel_run(session: Session, caller: Caller, run: RunRow) -> None:
    """Have a run, which is locked, end; one that was cancelled or has ended is left alone."""
    if run.cancel_requested or run.state in FINAL_RUN_STATES:
        return
    at = current_time(session)
    AuditRepository(session).add(caller, action="run.cancel", subject=run.id)
    run.cancel_requested = True
    text = f"cancelled by {caller.name}"
    tell(session, run, kind="cancel_requested", text=text, at=at)
    if run.state in _AT_ONCE:
        run.reason = "it was cancelled"
        move(session, run, RunState.CANCELLED, actor=Actor.USER, text="nothing ran", at=at)
        return
    if run.state != RunState.STOPPING:
        text = "its agents are told to stop"
        move(session, run, RunState.STOPPING, actor=Actor.USER, text=text, at=at)
    settle(session, run, actor=Actor.USER, at=at)


def _planned(session: Session, caller: Caller, plan_id: str) -> StoredPlan:
    row = PlanRepository(session, caller.project_id).get(plan_id)
    if row is None:
        raise NotFoundError("plan", plan_id)
    stored = stored_plan(row)
    if not isinstance(stored.answer, Plan):
        raise InputError(
            "is an infeasible answer: it has no strategy to run",
            field="plan_id",
            value=plan_id,
            remedy="run a plan; the answer says which changes would make one",
        )
    return stored


def _documents(session: Session, rows: Sequence[RunRow]) -> list[Run]:
    """Return the runs with the leases of their epochs, read at once for all."""
    leases = LeaseRepository(session).of_runs({(row.id, row.epoch) for row in rows})
    names = AgentRepository(session).named({lease.agent_id for lease in leases})
    return [
        run_document(row, [lease for lease in leases if lease.run_id == row.id], names)
        for row in rows
    ]
