"""Analyses: questions about a plan whose answers need searches, worked out once and kept.

They run in the solvers' pool under a time limit of their own. Those of a process that dies fail,
and whoever asks again starts them again. Cancelling one forgets it: the process that works on it
ends its search at once, or with its next progress or renewal where another process was told.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog
from sqlalchemy.exc import IntegrityError

from api.caller import Caller
from api.db import Database
from api.errors import NoStrategyError, NotFoundError, SolveAbandonedError, problem_of
from api.plan_schemas import PlanAnalysis, PlanAnalysisList
from api.repositories.analyses import (
    AnalysisKey,
    AnalysisLease,
    AnalysisRepository,
    RunningAnalyses,
)
from api.repositories.plans import PlanRepository
from api.services.analysis_work import Told, analyse
from api.services.solves import Solves
from api.tables import AnalysisRow
from planner.errors import MeshwrightError
from planner.pools.solver_pool import SolverPool
from planner.schema.service import Problem

SECONDS_LIMIT = 60.0
_ABANDONED = "the service that worked on it stopped"

_ANSWER_FIELDS = {
    "reasons": "reasons",
    "why-not": "objection",
    "heatmap": "heatmap",
    "frontier": "frontier",
    "frameworks": "frameworks",
}

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """A question about a plan: `state` is running, succeeded or failed."""

    kind: str
    asked: str
    state: str
    phase: str
    done: int
    total: int
    document_json: str | None
    problem: Problem | None


class AnalysisService:
    """What can be asked about plans that exist."""

    def __init__(
        self, database: Database, pool: SolverPool, solves: Solves, *, dask_scheduler: str = ""
    ) -> None:
        self._database = database
        self._spread = {"dask_scheduler": dask_scheduler} if dask_scheduler else {}
        self._pool = pool
        self._solves = solves
        self._at_work: dict[AnalysisKey, _Work] = {}

    def of_plan(self, caller: Caller, plan_id: str) -> tuple[Analysis, ...]:
        """Return what was asked about the plan, the newest question first."""
        with self._database.reading() as session:
            rows = AnalysisRepository(session, caller.project_id).of_plan(plan_id)
            return tuple(_analysis(row) for row in rows)

    def documents(self, caller: Caller, plan_id: str) -> PlanAnalysisList:
        """Return what was asked about the plan, the newest question first, with the answers.

        Raises:
            NotFoundError: if the project has no such plan.
        """
        with self._database.reading() as session:
            if PlanRepository(session, caller.project_id).get(plan_id) is None:
                raise NotFoundError("plan", plan_id)
        return PlanAnalysisList(
            items=tuple(_document(each) for each in self.of_plan(caller, plan_id))
        )

    def document(self, caller: Caller, plan_id: str, kind: str, *, asked: str = "") -> PlanAnalysis:
        """Return the question and what came of it so far.

        Raises:
            NotFoundError: if nobody asked it, or it was cancelled.
        """
        with self._database.reading() as session:
            row = AnalysisRepository(session, caller.project_id).get(plan_id, kind, asked)
            if row is None:
                raise NotFoundError("analysis", f"{kind} {asked}".strip())
            return _document(_analysis(row))

    def start(self, caller: Caller, plan_id: str, kind: str, *, asked: str = "") -> None:
        """Have the question worked out, unless it is answered or at work already.

        Raises:
            NotFoundError: if the project has no such plan.
            NoStrategyError: if it is an infeasible answer.
            BusyError: if too many solves wait.
        """
        self._solves.check_capacity()
        at = datetime.now(UTC)
        try:
            plan_json = self._claim(caller, plan_id, kind, asked=asked, at=at)
        except IntegrityError:  # somebody asked the same at the same time
            return
        if plan_json is None:
            return
        key = (caller.project_id, plan_id, kind, asked)
        outcome = _Outcome(self._database, key, at)
        answer = self._pool.submit(
            analyse,
            kind,
            plan_json,
            asked,
            seconds=SECONDS_LIMIT,
            on_progress=outcome.tell,
            **self._spread,
        )
        outcome.when_forgotten = lambda: self._pool.kill(answer)
        self._at_work[key] = _Work(answer=answer, started_at=at)
        answer.add_done_callback(outcome.store)
        answer.add_done_callback(lambda done: self._ended(key, done))

    def cancel(self, caller: Caller, plan_id: str, kind: str, *, asked: str = "") -> None:
        """Forget the question if it is at work; one that is settled, or that nobody asked, stays.

        Raises:
            NotFoundError: if the project has no such plan.
        """
        with self._database.writing() as session:
            if PlanRepository(session, caller.project_id).get(plan_id) is None:
                raise NotFoundError("plan", plan_id)
            known = AnalysisRepository(session, caller.project_id).get(plan_id, kind, asked)
            if known is None or known.state != "running":
                return
            session.delete(known)
        self._stop((caller.project_id, plan_id, kind, asked))

    def forget_left(self) -> None:
        """Fail all analyses that are at work."""
        for key, lease in self.leases().items():
            self.give_up(key, lease)

    def renew(self) -> None:
        """Renew the leases of this process, and end what was cancelled elsewhere."""
        held = dict(self._at_work)
        if not held:
            return
        end = self._solves.lease_end()
        with self._database.writing() as session:
            running = RunningAnalyses(session)
            gone = [
                key
                for key, work in held.items()
                if not running.change(key, started_at=work.started_at, expires_at=end)
            ]
        for key in gone:
            self._stop(key)

    def leases(self) -> Mapping[AnalysisKey, AnalysisLease]:
        """Return the analyses that are at work anywhere, with what renewals change."""
        with self._database.reading() as session:
            return RunningAnalyses(session).leases()

    def give_up(self, key: AnalysisKey, lease: Hashable) -> None:
        """Fail an analysis whose lease is as it was."""
        log.warning("analysis abandoned", plan_id=key[1], kind=key[2])
        problem = problem_of(SolveAbandonedError(_ABANDONED)).model_dump_json()
        with self._database.recording() as session:
            running = RunningAnalyses(session)
            found = running.leases().get(key)
            if found is not None and found == lease:
                running.change(key, started_at=found[0], state="failed", problem=problem)

    def _stop(self, key: AnalysisKey) -> None:
        work = self._at_work.get(key)
        if work is not None:
            self._pool.kill(work.answer)

    def _ended(self, key: AnalysisKey, answer: Future[str]) -> None:
        work = self._at_work.get(key)
        if work is not None and work.answer is answer:
            del self._at_work[key]

    def _claim(
        self, caller: Caller, plan_id: str, kind: str, *, asked: str, at: datetime
    ) -> str | None:
        """Return the plan if the question is ours to answer now."""
        with self._database.writing() as session:
            plan = PlanRepository(session, caller.project_id).get(plan_id)
            if plan is None:
                raise NotFoundError("plan", plan_id)
            if plan.status == "infeasible":
                raise NoStrategyError(plan_id)
            analyses = AnalysisRepository(session, caller.project_id)
            known = analyses.get(plan_id, kind, asked)
            if known is not None and known.state != "failed":
                return None
            if known is not None:
                session.delete(known)
                session.flush()
            analyses.add(
                AnalysisRow(
                    project_id=caller.project_id,
                    plan_id=plan_id,
                    kind=kind,
                    asked=asked,
                    state="running",
                    created_at=at,
                    expires_at=self._solves.lease_end(),
                )
            )
            return plan.document


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What this process works on: the pool's answer, and which of equal questions it is."""

    answer: Future[str]
    started_at: datetime


class _Outcome:
    """Writes down how far an analysis is, and what came of it."""

    when_forgotten: Callable[[], None] | None = None

    def __init__(self, database: Database, key: AnalysisKey, started_at: datetime) -> None:
        self._database = database
        self._key = key
        self._started_at = started_at

    def tell(self, told: Told) -> None:
        """Take progress; where nobody waits for the answer any more, end the search."""
        is_ours = self._write(progress=json.dumps(told))
        if is_ours is False and self.when_forgotten is not None:
            self.when_forgotten()

    def store(self, answer: Future[str]) -> None:
        """Take the end."""
        try:
            document = answer.result()
        except CancelledError:
            self._fail(SolveAbandonedError(_ABANDONED))
        except MeshwrightError as error:
            self._fail(error)
        except Exception as error:
            log.exception("analysis failed", plan_id=self._key[1], kind=self._key[2])
            self._fail(error)
        else:
            self._write(state="succeeded", document=document)

    def _fail(self, error: Exception) -> None:
        self._write(state="failed", problem=problem_of(error).model_dump_json())

    def _write(self, **values: Any) -> bool | None:
        """Return whether the analysis is still the one that was started, `None` if unknown."""
        try:
            with self._database.recording() as session:
                return RunningAnalyses(session).change(
                    self._key, started_at=self._started_at, **values
                )
        except Exception:
            log.exception("analysis not stored", plan_id=self._key[1], kind=self._key[2])
            return None


def _analysis(row: AnalysisRow) -> Analysis:
    phase, done, total = json.loads(row.progress) if row.progress else ("waiting", 0, 1)
    return Analysis(
        kind=row.kind,
        asked=row.asked,
        state=row.state,
        phase=phase,
        done=done,
        total=total,
        document_json=row.document,
        problem=None if row.problem is None else Problem.model_validate_json(row.problem),
    )


def _document(analysis: Analysis) -> PlanAnalysis:
    answer = None if analysis.document_json is None else json.loads(analysis.document_json)
    return PlanAnalysis.model_validate(
        {
            "kind": analysis.kind,
            "asked": analysis.asked,
            "state": analysis.state,
            "phase": analysis.phase,
            "done": analysis.done,
            "total": analysis.total,
            _ANSWER_FIELDS[analysis.kind]: answer,
            "problem": analysis.problem,
        }
    )
