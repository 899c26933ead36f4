"""Trials of tunings: what comes next is worked out, run by agents, and read back, again and again.

    look for the next plan ──> its run ──> measured, out of memory, or failed ──> look again
             └──> the certificate, and the best plan

The search runs in the solvers' pool; the trial is an ordinary run. How far a tuning is stands in
the database, so that any process can take the next step, also after the one that began has died: a
search that nobody works on any more is begun again, and what of it comes late changes nothing.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog
from sqlalchemy.orm import Session

from api.caller import Caller, Scope
from api.db import Database
from api.errors import BusyError, problem_of
from api.repositories.clock import current_time
from api.repositories.leases import LeaseRepository
from api.repositories.measurements import MeasurementRepository
from api.repositories.plans import PlanRepository
from api.repositories.runs import RunRepository
from api.repositories.tunings import TuningRepository
from api.services.gangs import Gangs
from api.services.identifiers import new_identifier
from api.services.records import plan_row
from api.services.run_durations import RunDurations
from api.services.runs import cancel_run, queue_run
from api.services.solving import Solving
from api.services.tuning_records import keep, stored_tuning, under_way
from api.tables import RunRow, TuningRow
from api.tuning_schemas import TrialUnderWay, TuningState
from planner.answers.explain import describe_strategy
from planner.errors import DaskLostError, MeshwrightError, SolveCancelledError
from planner.schema.lifecycle import FINAL_RUN_STATES, RunState
from planner.schema.plan import Plan
from planner.schema.run import RunRequest
from planner.schema.tuning import Tuning, TuningTrial
from planner.tuning.decision import Decision, Ended, NextTrial
from planner.tuning.outcome import FAILURES_MOST, WARM_UP_STEPS, all_failed, failure_of

_LOG_TAIL_BYTES = 4096
_LOG_PIECES = 64

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """`answer` is the pool's; `recorded` is done once the database knows."""

    answer: Future[Decision]
    recorded: Future[None] = field(default_factory=Future)


class TuningTrials:
    """Takes tunings that go on from one step to the next."""

    def __init__(self, database: Database, solving: Solving, gangs: Gangs) -> None:
        self._database = database
        self._solving = solving
        self._gangs = gangs
        self._searches: dict[str, _Search] = {}
        self._durations = RunDurations()
        self._lock = threading.Lock()

    def forget_left(self) -> None:
        """Have every search begun again."""
        for tuning_id, lease in self.leases().items():
            self.give_up(tuning_id, lease)

    def renew(self) -> None:
        """Renew the leases of this process's searches."""
        with self._lock:
            tokens = set(self._searches)
        if tokens:
            with self._database.writing() as session:
                end = self._solving.solves.lease_end()
                TuningRepository(session).renew_work(tokens, until=end)

    def leases(self) -> Mapping[str, tuple[str | None, datetime | None]]:
        """Return the tunings that are searched for what comes next, with what renewals change."""
        with self._database.reading() as session:
            return TuningRepository(session).work_leases()

    def give_up(self, tuning_id: str, lease: Hashable) -> None:
        """Have a search whose lease is as it was begun again, by whoever looks next."""
        log.warning("search for the next trial abandoned", tuning_id=tuning_id)
        with self._database.recording() as session:
            row = TuningRepository(session).locked(tuning_id)
            if (row.work_token, row.work_expires_at) == lease:
                row.work_token = row.work_expires_at = None

    def advance_all(self) -> None:
        """Take each tuning that waits for it one step on."""
        with self._database.reading() as session:
            running = TuningRepository(session).running()
            self._look_at_runs(session, running)
            due = [row.id for row in running if _is_due(session, row)]
        for tuning_id in due:
            self.advance(tuning_id)

    def advance(self, tuning_id: str) -> None:
        """Read what came of the trial under way, and have the next one looked for."""
        token = uuid.uuid4().hex
        with self._database.writing() as session:
            row = TuningRepository(session).locked(tuning_id)
            if row.state != TuningState.RUNNING or not _is_due(session, row):
                return
            if row.under_way is not None and not _settle(session, row, self._durations):
                return
            if self._is_busy():
                return
            row.work_token, row.work_expires_at = token, self._solving.solves.lease_end()
            tuning = stored_tuning(row)
        search = _Search(answer=self._solving.pool.submit(self._solving.planner.decide, tuning))
        with self._lock:
            self._searches[token] = search
        search.answer.add_done_callback(lambda _: self._ended(tuning_id, token, search))

    def _look_at_runs(self, session: Session, rows: Sequence[TuningRow]) -> None:
        """Note how far the runs of trials are, for how long they take."""
        trials = [trial for trial in map(under_way, rows) if trial is not None]
        self._durations.forget_others({trial.run_id for trial in trials})
        for trial in trials:
            run = RunRepository(session).get(trial.run_id)
            if run is not None and run.state not in FINAL_RUN_STATES:
                self._durations.saw(run.id, started=run.started_at is not None)

    def forget(self, work_token: str | None) -> None:
        """End the search for what comes next, if this process is at it."""
        with self._lock:
            search = self._searches.get(work_token or "")
        if search is not None:
            self._solving.pool.kill(search.answer)

    def recorded(self) -> tuple[Future[None], ...]:
        """Return what is done once the outcomes of this process's searches are stored."""
        with self._lock:
            return tuple(search.recorded for search in self._searches.values())

    def _is_busy(self) -> bool:
        try:
            self._solving.solves.check_capacity()
        except (BusyError, DaskLostError):
            return True
        return False

    def _ended(self, tuning_id: str, token: str, search: _Search) -> None:
        try:
            run_id = self._record(tuning_id, token, search.answer)
            if run_id is not None:
                self._gangs.lease(run_id)
        except Exception:
            log.exception("next trial not stored", tuning_id=tuning_id)
        finally:
            with self._lock:
                self._searches.pop(token, None)
            search.recorded.set_result(None)

    def _record(self, tuning_id: str, token: str, answer: Future[Decision]) -> str | None:
        """Write down what was decided; return the run that is to be leased."""
        with self._database.recording() as session:
            row = TuningRepository(session).locked(tuning_id)
            if row.work_token != token:
                return None
            row.work_token = row.work_expires_at = None
            try:
                decision = answer.result()
            except (CancelledError, DaskLostError, SolveCancelledError):
                return None  # this service stops, or its workers are gone: it is looked again
            except Exception as error:
                if not isinstance(error, MeshwrightError):
                    log.exception("tuning failed", tuning_id=tuning_id)
                _fail(session, row, error)
                return None
            if isinstance(decision, Ended):
                _end(session, row, decision)
                return None
            run_id = _begin_trial(session, row, decision)
            self._durations.saw(run_id, started=False)
            return run_id


def _is_due(session: Session, row: TuningRow) -> bool:
    """Return whether there is something to be done: a trial to be ended or read, or a search."""
    trial = under_way(row)
    if trial is None:
        return row.work_token is None
    run = RunRepository(session).get(trial.run_id)
    if run is None or run.cancel_requested or run.state in FINAL_RUN_STATES:
        return run is not None and run.state in FINAL_RUN_STATES
    steps, _ = _measured(session, run, step_count=row.step_budget)
    return len(steps) >= row.step_budget


def _settle(session: Session, row: TuningRow, durations: RunDurations) -> bool:
    """Keep what came of the trial under way, and return whether another may follow."""
    trial, tuning = under_way(row), stored_tuning(row)
    if trial is None:
        return True
    run = RunRepository(session).locked(trial.run_id)
    steps, peak_bytes = _measured(session, run, step_count=row.step_budget)
    is_enough = len(steps) >= row.step_budget
    if run.state not in FINAL_RUN_STATES:
        if is_enough:
            cancel_run(session, _caller(row), run)
        return False
    if steps and (run.state == RunState.SUCCEEDED or (run.cancel_requested and is_enough)):
        outcome: Mapping[str, Any] = {
            "outcome": "measured",
            "step_seconds": steps,
            "peak_memory_bytes": peak_bytes,
        }
    else:
        outcome = _failure(session, run)
    took = durations.seconds(run.id, run.started_at, run.finished_at)
    done = _trial(session, run, trial, {**outcome, "run_seconds": took})
    tuning = tuning.model_copy(update={"trials": (*tuning.trials, done)})
    keep(row, tuning)
    row.under_way = None
    if _all_failed(row, tuning):
        _fail(session, row, all_failed(done, remedy="resume the tuning"))
        return False
    return True


def _measured(
    session: Session, run: RunRow, *, step_count: int
) -> tuple[tuple[float, ...], int | None]:
    """Return the newest steps after warm-up, of the slowest rank each, and the highest peak."""
    lease_ids = [lease.id for lease in LeaseRepository(session).of_epoch(run.id, run.epoch)]
    measurements = MeasurementRepository(session)
    newest = measurements.slowest_ranks(lease_ids, limit=step_count + WARM_UP_STEPS)
    timed = newest[: max(len(newest) - WARM_UP_STEPS, 0)]
    peaks = [peak for peak in measurements.peaks(lease_ids).values() if peak is not None]
    return tuple(seconds for _, seconds, _ in reversed(timed)), max(peaks, default=None)


def _failure(session: Session, run: RunRow) -> Mapping[str, Any]:
    """Return why the run measured nothing, which its log may say where its reason does not."""
    if run.state == RunState.SUCCEEDED:
        return failure_of("it reported no step after its first")
    reason = run.reason or f"the run has {run.state}"
    if run.state == RunState.CANCELLED:
        return failure_of(reason)
    measurements = MeasurementRepository(session)
    pieces = [
        row.text
        for lease in LeaseRepository(session).of_epoch(run.id, run.epoch)
        for row in measurements.log(
            lease.id, offset=max(lease.log_offset - _LOG_TAIL_BYTES, 0), limit=_LOG_PIECES
        )
    ]
    return failure_of(reason, printed="".join(pieces))


def _trial(
    session: Session, run: RunRow, trial: TrialUnderWay, outcome: Mapping[str, Any]
) -> TuningTrial:
    """Return what came of a run as a trial of its tuning."""
    plan = Plan.model_validate_json(RunRepository(session).plan_of(run.id, 1).document)
    return TuningTrial.model_validate(
        {
            "strategy": plan.strategy,
            "description": trial.description,
            "predicted": trial.predicted,
            "predicted_peak_bytes": trial.predicted_peak_bytes,
            "fits_probability": trial.fits_probability,
            "optimistic_seconds": trial.optimistic_seconds,
            "log": f"/v1/runs/{run.id}/logs",
            "run_id": run.id,
            **outcome,
        }
    )


def _all_failed(row: TuningRow, tuning: Tuning) -> bool:
    """Return whether what was tried since it was begun, or resumed, failed and measured nothing."""
    outcomes = [trial.outcome for trial in tuning.trials[row.begun_count :]]
    return tuning.best_index is None and outcomes.count("failed") >= FAILURES_MOST


def _fail(session: Session, row: TuningRow, error: Exception) -> None:
    row.state, row.finished_at = TuningState.FAILED.value, current_time(session)
    row.problem = problem_of(error).model_dump_json()


def _end(session: Session, row: TuningRow, decision: Ended) -> None:
    tuning = stored_tuning(row).model_copy(update={"certificate": decision.certificate})
    keep(row, tuning)
    row.state, row.finished_at = TuningState.SUCCEEDED.value, current_time(session)
    if decision.best is not None:
        row.best_plan_id = decision.best.id
        _store(session, row, decision.best)


def _begin_trial(session: Session, row: TuningRow, decision: NextTrial) -> str:
    """Queue the run of the plan that is tried next, and return its id."""
    plan, candidate = decision.plan, decision.candidate
    request = RunRequest(
        plan_id=plan.id,
        command=row.command,
        arguments=json.loads(row.arguments),
        restart_limit=0,
        replan=False,
    )
    run_id = new_identifier("run")
    _store(session, row, plan)
    queue_run(session, _caller(row), request, run_id=run_id, document=plan.model_dump_json())
    trial = TrialUnderWay(
        number=row.trial_count + 1,
        run_id=run_id,
        plan_id=plan.id,
        description=describe_strategy(plan.strategy),
        predicted=candidate.prospect.step_seconds,
        predicted_peak_bytes=candidate.peak_bytes,
        fits_probability=candidate.prospect.fits_probability,
        optimistic_seconds=decision.optimistic_seconds,
    )
    row.under_way = trial.model_dump_json()
    return run_id


def _store(session: Session, row: TuningRow, plan: Plan) -> None:
    """Keep a plan among the project's, unless an equal tuning before had it."""
    plans = PlanRepository(session, row.project_id)
    if plans.get(plan.id) is None:
        plans.add(plan_row(plan, request_digest=plan.id))


def _caller(row: TuningRow) -> Caller:
    return Caller(
        project_id=row.project_id,
        name=row.id,
        scopes=frozenset({Scope.PLAN, Scope.RUN}),
        key_id=None,
    )
