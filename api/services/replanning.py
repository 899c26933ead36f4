"""Replanning: a run that lost devices gets a plan for those that are left.

The same model and job are planned on what idle agents can stand for of the run's first cluster,
by the service's ordinary solves. What a run waits for stands in the database, so that any process
can take the next step, also after the one that began has died.
"""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta

import structlog
from sqlalchemy.orm import Session

from api.caller import Caller, Scope
from api.db import Database
from api.errors import PROBLEM_TYPE_PREFIX, BusyError, FailedSolveError
from api.repositories.clock import current_time
from api.repositories.operations import OperationRepository
from api.repositories.plans import PlanRepository
from api.repositories.runs import RunRepository
from api.schemas import PlanRequest
from api.services.gangs import idle_candidates
from api.services.placement import assignments, remaining_cluster
from api.services.plans import PlanService
from api.services.records import StoredPlan, stored_plan
from api.services.run_moves import move, tell
from api.settings import Settings
from api.tables import OperationRow, RunPlanRow, RunRow
from planner.answers.explain import describe_strategy
from planner.errors import DaskLostError, InputError, SolveCancelledError
from planner.schema.cluster import Cluster
from planner.schema.lifecycle import Actor, RunState
from planner.schema.plan import Infeasible, Plan
from planner.schema.run import PlanChange
from planner.schema.service import Operation, OperationState, Problem

_NO_ANSWER = {f"{PROBLEM_TYPE_PREFIX}{name}" for name in ("solve-abandoned", "dask-unavailable")}

log = structlog.get_logger(__name__)


class Replanning:
    """Takes runs in the state `replanning` on, a step at a time."""

    def __init__(self, database: Database, plans: PlanService, settings: Settings) -> None:
        self._database = database
        self._plans = plans
        self._patience = timedelta(seconds=settings.replan_after_seconds)

    def advance_all(self) -> None:
        """Take every replanning run one step on."""
        with self._database.reading() as session:
            waiting = RunRepository(session).ids_in(RunState.REPLANNING)
        for run_id in waiting:
            self._advance(run_id)

    def give_up_waiting(self) -> None:
        """Replan queued runs that were started before and whose agents stay away too long."""
        with self._database.reading() as session:
            waiting = RunRepository(session).ids_in(RunState.QUEUED)
        for run_id in waiting:
            self._give_up_waiting(run_id)

    def _give_up_waiting(self, run_id: str) -> None:
        with self._database.writing() as session:
            run = RunRepository(session).claimed(run_id, state=RunState.QUEUED)
            at = current_time(session)
            if (
                run is None
                or not run.replan
                or not run.epoch
                or run.queued_at + self._patience > at
            ):
                return
            if _plan_is_placeable(session, run, at) or _what_is_left(session, run, at) is None:
                return
            text = f"its agents stayed away for {self._patience.total_seconds():g} s"
            move(session, run, RunState.REPLANNING, actor=Actor.SERVICE, text=text, at=at)

    def _advance(self, run_id: str) -> None:
        wanted = self._next_question(run_id)
        if wanted is None:
            return
        caller, request = wanted
        try:
            outcome = asyncio.run(self._plans.submit(caller, request, wait_seconds=0.0))
        except (BusyError, DaskLostError):
            return
        except FailedSolveError as error:
            if error.problem.type not in _NO_ANSWER:
                self._fail(run_id, error.problem)
        except (InputError, SolveCancelledError) as error:
            self._fail(run_id, str(error))
        else:
            self._remember(run_id, outcome.plan if not isinstance(outcome, Operation) else outcome)

    def _next_question(self, run_id: str) -> tuple[Caller, PlanRequest] | None:
        """Return what is to be planned, unless that is under way or need not be any more."""
        with self._database.writing() as session:
            run = RunRepository(session).claimed(run_id, state=RunState.REPLANNING)
            if run is None:
                return None
            at = current_time(session)
            if run.operation_id is not None:
                self._look_at_operation(session, run, at)
            if run.state != RunState.REPLANNING or run.operation_id is not None:
                return None
            cluster = _what_is_left(session, run, at)
            if cluster is None or _plan_is_placeable(session, run, at):
                _queue_unchanged(session, run, is_placeable=cluster is not None, at=at)
                return None
            return _caller(run), _request(_first_plan(session, run), cluster)

    def _look_at_operation(self, session: Session, run: RunRow, at: datetime) -> None:
        """Follow the plan that a solve found, or forget a solve that died with its service."""
        operation = OperationRepository(session).get(run.operation_id or "")
        if operation is None or _was_abandoned(operation):
            run.operation_id = None
        elif operation.state == OperationState.SUCCEEDED:
            row = PlanRepository(session, run.project_id).get(operation.plan_id or "")
            if row is None:
                run.operation_id = None
            else:
                _adopt(session, run, stored_plan(row), at)
        elif operation.state != OperationState.RUNNING:
            _end(session, run, f"replanning ended: {_problem_of(operation)}", at)

    def _remember(self, run_id: str, outcome: Operation | StoredPlan) -> None:
        with self._database.writing() as session:
            run = RunRepository(session).claimed(run_id, state=RunState.REPLANNING)
            if run is None:
                return
            if isinstance(outcome, StoredPlan):
                _adopt(session, run, outcome, current_time(session))
            else:
                run.operation_id = outcome.id

    def _fail(self, run_id: str, problem: Problem | str) -> None:
        detail = problem if isinstance(problem, str) else problem.detail
        with self._database.writing() as session:
            run = RunRepository(session).claimed(run_id, state=RunState.REPLANNING)
            if run is not None:
                _end(session, run, f"replanning failed: {detail}", current_time(session))


def _adopt(session: Session, run: RunRow, stored: StoredPlan, at: datetime) -> None:
    """Have the run follow the plan that was found, if one was."""
    answer = stored.answer
    if isinstance(answer, Infeasible):
        _end(session, run, f"no plan is likely enough to fit what is left: {_why(answer)}", at)
        return
    follow(session, run, answer, document=stored.document_json, at=at)
    text = "to be started again under the new plan"
    move(session, run, RunState.QUEUED, actor=Actor.SERVICE, text=text, at=at)


def follow(session: Session, run: RunRow, plan: Plan, *, document: str, at: datetime) -> None:
    """Have the run follow another plan from the next attempt on, and say what the change costs."""
    runs = RunRepository(session)
    old = Plan.model_validate_json(runs.plan_of(run.id, run.epoch).document)
    change = _change(run, old, plan)
    runs.add_plan(
        RunPlanRow(run_id=run.id, from_epoch=run.epoch + 1, plan_id=plan.id, document=document)
    )
    run.plan_id = plan.id
    tell(session, run, kind="replanned", text=_in_words(change), at=at, change=change)


def _end(session: Session, run: RunRow, reason: str, at: datetime) -> None:
    run.reason = f"{run.reason}; {reason}" if run.reason else reason
    move(session, run, RunState.FAILED, actor=Actor.SERVICE, text=reason, at=at)


def _queue_unchanged(session: Session, run: RunRow, *, is_placeable: bool, at: datetime) -> None:
    text = (
        "idle agents can take the same plan"
        if is_placeable
        else "no agent is left: it waits until some are there"
    )
    move(session, run, RunState.QUEUED, actor=Actor.SERVICE, text=text, at=at)


def _plan_is_placeable(session: Session, run: RunRow, at: datetime) -> bool:
    row = RunRepository(session).plan_of(run.id, run.epoch + 1)
    plan = Plan.model_validate_json(row.document)
    idle = idle_candidates(session, run.project_id, at=at)
    return assignments(plan, idle, command=run.command) is not None


def _what_is_left(session: Session, run: RunRow, at: datetime) -> Cluster | None:
    """Return what idle agents can stand for of the cluster that the run was asked for with."""
    cluster = _first_plan(session, run).cluster.resolved
    idle = idle_candidates(session, run.project_id, at=at)
    return remaining_cluster(cluster, idle, command=run.command)


def _first_plan(session: Session, run: RunRow) -> Plan:
    return Plan.model_validate_json(RunRepository(session).plan_of(run.id, 1).document)


def _request(plan: Plan, cluster: Cluster) -> PlanRequest:
    """Return the question for the same model and job, all defaults spelled out, on `cluster`."""
    return PlanRequest(
        model=plan.model.resolved.model_dump(mode="json"),
        cluster=cluster.model_dump(mode="json"),
        job=plan.job.resolved,
    )


def _caller(run: RunRow) -> Caller:
    return Caller(
        project_id=run.project_id,
        name=f"replanning of {run.id}",
        scopes=frozenset({Scope.PLAN}),
        key_id=None,
    )


def _change(run: RunRow, old: Plan, new: Plan) -> PlanChange:
    before, after = old.prediction.step_seconds.p50, new.prediction.step_seconds.p50
    return PlanChange(
        lost_agents=tuple(json.loads(run.lost_agents or "[]")),
        old_plan_id=old.id,
        new_plan_id=new.id,
        old_strategy=describe_strategy(old.strategy),
        new_strategy=describe_strategy(new.strategy),
        old_device_count=old.strategy.world_size,
        new_device_count=new.strategy.world_size,
        old_step_seconds=before,
        new_step_seconds=after,
        step_seconds_ratio=after / before,
        resumed_from_step=run.checkpoint_step,
    )


def _in_words(change: PlanChange) -> str:
    lost = f" without {', '.join(change.lost_agents)}" if change.lost_agents else ""
    return (
        f"planned anew{lost}: {change.old_strategy} on {change.old_device_count} devices "
        f"({change.old_step_seconds:.3g} s a step) became {change.new_strategy} on "
        f"{change.new_device_count} ({change.new_step_seconds:.3g} s a step, "
        f"{change.step_seconds_ratio:.2f} times as long)"
    )


def _why(answer: Infeasible) -> str:
    first = answer.binding[0] if answer.binding else None
    return "nothing was found" if first is None else f"{first.description}: {first.reason}"


def _was_abandoned(operation: OperationRow) -> bool:
    """Return whether the solve ended for no reason of its own, so that it is begun again."""
    if operation.state != OperationState.FAILED or operation.problem is None:
        return False
    return Problem.model_validate_json(operation.problem).type in _NO_ANSWER


def _problem_of(operation: OperationRow) -> str:
    if operation.problem is None:
        return f"the solve was {operation.state}"
    return Problem.model_validate_json(operation.problem).detail
