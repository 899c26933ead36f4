"""Tunings as people see them: asked for, listed, cancelled, resumed."""

from __future__ import annotations

import json

from sqlalchemy.orm import Session

from api.caller import Caller
from api.cursors import cursor, position
from api.db import Database, settled
from api.errors import NotFoundError, TuningStateError
from api.repositories.audit import AuditRepository
from api.repositories.clock import current_time
from api.repositories.runs import RunRepository
from api.repositories.tunings import TuningRepository
from api.services.identifiers import identifier_of_key, new_identifier
from api.services.run_arguments import check_arguments
from api.services.runs import agent_reports, cancel_run
from api.services.solving import Solving
from api.services.tuning_records import keep, summary_of, tuning_of, under_way
from api.services.tuning_trials import TuningTrials
from api.tables import TuningRow
from api.tuning_schemas import FleetTuning, TuningPage, TuningQuery, TuningRequest, TuningState
from planner.schema.tuning import Tuning

_RESUMED_FROM = frozenset({TuningState.FAILED, TuningState.CANCELLED})


class TuningService:
    """What can be asked about tunings; any process of the service can answer."""

    def __init__(self, database: Database, solving: Solving, trials: TuningTrials) -> None:
        self._database = database
        self._planner = solving.planner
        self._solves = solving.solves
        self._trials = trials

    def create(
        self, caller: Caller, request: TuningRequest, *, idempotency_key: str | None = None
    ) -> FleetTuning:
        """Begin a tuning, and return it; the same key again returns the same tuning.

        Raises:
            InputError: if the request is bad, or agents would refuse the arguments.
            KeyReusedError: if the key stands for another request.
            BusyError: if too many solves wait.
        """
        model = self._planner.resolved_model(request.model)
        cluster = self._planner.resolved_cluster(request.cluster)
        tuning = self._planner.new_tuning(model, cluster, request.job, request.budget)
        tuning_id = settled(lambda: self._create(caller, request, tuning, idempotency_key))
        self._trials.advance(tuning_id)
        return self.get(caller, tuning_id)

    def get(self, caller: Caller, tuning_id: str) -> FleetTuning:
        """Return the tuning.

        Raises:
            NotFoundError: if the caller's project has none with that id.
        """
        with self._database.reading() as session:
            return tuning_of(_found(session, tuning_id, caller))

    def list(self, caller: Caller, query: TuningQuery | None = None) -> TuningPage:
        """Return a page of the project's tunings, the newest first.

        Raises:
            InputError: if the cursor is none of ours.
        """
        query = query or TuningQuery()
        before = None if query.cursor is None else position(query.cursor)
        with self._database.reading() as session:
            rows = TuningRepository(session).page(
                caller.project_id, state=query.state, before=before, limit=query.limit + 1
            )
        page = rows[: query.limit]
        more = cursor(page[-1].sequence) if len(rows) > query.limit else None
        return TuningPage(items=tuple(summary_of(row) for row in page), next_cursor=more)

    def cancel(self, caller: Caller, tuning_id: str) -> FleetTuning:
        """Have the tuning end, with the trial under way; cancelling twice is the same as once.

        Raises:
            NotFoundError: if the caller's project has none with that id.
            TuningStateError: if it has ended otherwise.
        """
        with self._database.writing() as session:
            _found(session, tuning_id, caller)
            row = TuningRepository(session).locked(tuning_id)
            if row.state not in (TuningState.RUNNING, TuningState.CANCELLED):
                raise TuningStateError(tuning_id, row.state, asked="cancelled")
            work_token = row.work_token
            if row.state == TuningState.RUNNING:
                AuditRepository(session).add(caller, action="tuning.cancel", subject=tuning_id)
                _cancel(session, caller, row)
            cancelled = tuning_of(row)
        self._trials.forget(work_token)
        return cancelled

    def resume(self, caller: Caller, tuning_id: str) -> FleetTuning:
        """Have a tuning that was cancelled, or failed, go on; one that is running does.

        Raises:
            NotFoundError: if the caller's project has none with that id.
            TuningStateError: if it came to its end.
            BusyError: if too many solves wait.
        """
        with self._database.writing() as session:
            _found(session, tuning_id, caller)
            row = TuningRepository(session).locked(tuning_id)
            if row.state == TuningState.SUCCEEDED:
                raise TuningStateError(tuning_id, row.state, asked="resumed")
            if row.state in _RESUMED_FROM:
                self._solves.check_capacity()
                AuditRepository(session).add(caller, action="tuning.resume", subject=tuning_id)
                row.state, row.finished_at, row.problem = TuningState.RUNNING.value, None, None
                row.begun_count = row.trial_count
        self._trials.advance(tuning_id)
        return self.get(caller, tuning_id)

    def _create(
        self, caller: Caller, request: TuningRequest, tuning: Tuning, key: str | None
    ) -> str:
        tuning_id = new_identifier("tuning")
        with self._database.writing() as session:
            if key is not None:
                tuning_id = identifier_of_key(session, caller, request, key=key, kind="tuning")
                if TuningRepository(session).get(tuning_id) is not None:
                    return tuning_id
            reports = agent_reports(session, caller.project_id)
            check_arguments(request.command, request.arguments, reports)
            self._solves.check_capacity()
            row = TuningRow(
                id=tuning_id,
                project_id=caller.project_id,
                state=TuningState.RUNNING.value,
                command=request.command,
                arguments=json.dumps(request.model_dump(mode="json")["arguments"]),
                begun_count=0,
                created_at=current_time(session),
            )
            keep(row, tuning)
            TuningRepository(session).add(row)
            details = {"model": row.model_name, "cluster": row.cluster_name}
            AuditRepository(session).add(
                caller, action="tuning.create", subject=tuning_id, details=details
            )
        return tuning_id


def _found(session: Session, tuning_id: str, caller: Caller) -> TuningRow:
    row = TuningRepository(session).get(tuning_id)
    if row is None or row.project_id != caller.project_id:
        raise NotFoundError("tuning", tuning_id)
    return row


def _cancel(session: Session, caller: Caller, row: TuningRow) -> None:
    """End the tuning and its trial, which is none of its trials then: it is tried again."""
    trial = under_way(row)
    if trial is not None:
        cancel_run(session, caller, RunRepository(session).locked(trial.run_id))
    row.state, row.finished_at = TuningState.CANCELLED.value, current_time(session)
    row.under_way = row.work_token = row.work_expires_at = None
