"""Solves that this process runs: started, watched, leased, and written down when they end.

The database decides: an answer is stored only where the operation still runs there, so one that
was cancelled or given up meanwhile stays so. No unit of work is open while a solve runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from api.db import Database
from api.errors import BusyError, SolveAbandonedError, problem_of
from api.repositories.operations import OperationRepository
from api.repositories.plans import PlanRepository
from api.services.planner import PlanFunction
from api.services.records import plan_row
from api.services.requests import ResolvedRequest
from api.services.transitions import move
from api.settings import Settings
from planner.errors import MeshwrightError, SolveCancelledError
from planner.pools.solver_pool import SolverPool
from planner.schema.plan import Infeasible, Plan
from planner.schema.progress import Progress
from planner.schema.service import OperationState

ABANDONED = "the service restarted"
_PROGRESS_SECONDS = 0.2

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Solve:
    """`answer` is the pool's; `recorded` is done once the database knows."""

    answer: Future[Any]
    digest: str
    owner: str | None
    recorded: Future[None] = field(default_factory=Future)


class Solves:
    """The solves of this process, by operation."""

    def __init__(
        self, database: Database, pool: SolverPool, plan: PlanFunction, *, settings: Settings
    ) -> None:
        self._database = database
        self._pool = pool
        self._plan = plan
        self._settings = settings
        self._running: dict[str, _Solve] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def lease_end(self) -> datetime:
        """Return until when a lease that is taken or renewed now holds."""
        return datetime.now(UTC) + timedelta(seconds=self._settings.lease_seconds)

    def check_capacity(self) -> None:
        """Refuse work where too much waits.

        Raises:
            BusyError: if as many solves wait as may.
            DaskLostError: if the Dask scheduler that solves are given to is not there.
        """
        self._pool.check()
        waiting_count = self._pool.waiting_count
        if waiting_count >= self._settings.queued_solve_limit + self._settings.solver_processes:
            raise BusyError(waiting_count)

    def start(self, operation_id: str, request: ResolvedRequest, *, owner: str | None) -> None:
        """Have the pool solve `request` for `owner`; the operation is stored already."""
        answer = self._pool.submit(
            self._plan,
            request.model,
            request.cluster,
            request.job,
            on_progress=_ProgressRecorder(self._database, operation_id),
        )
        solve = _Solve(answer=answer, digest=request.digest, owner=owner)
        with self._lock:
            self._running[operation_id] = solve
        answer.add_done_callback(lambda _: self._ended(operation_id, solve))

    def stop(self, operation_id: str) -> None:
        """End the solve if it is one of this process."""
        with self._lock:
            solve = self._running.get(operation_id)
        if solve is not None:
            self._pool.kill(solve.answer)

    def recorded(self, operation_id: str) -> Future[None] | None:
        """Return what is done once the outcome is stored; nothing if no solve runs here."""
        with self._lock:
            solve = self._running.get(operation_id)
        return None if solve is None else solve.recorded

    def close(self) -> None:
        """End all solves, and say why in their operations."""
        self._closing.set()
        self._pool.shutdown(cancel_futures=True)

    def forget_left(self) -> None:
        """Fail all operations that run."""
        for operation_id, lease in self.leases().items():
            self.give_up(operation_id, lease)

    def renew(self) -> None:
        """Renew the leases of this process, and end what was ended from elsewhere."""
        with self._lock:
            held = set(self._running)
        if not held:
            return
        with self._database.writing() as session:
            renewed = OperationRepository(session).renew_leases(held, until=self.lease_end())
        for operation_id in held - renewed:
            self.stop(operation_id)

    def leases(self) -> Mapping[str, datetime]:
        """Return the operations that run, with what each renewal changes."""
        with self._database.reading() as session:
            return OperationRepository(session).leases()

    def give_up(self, operation_id: str, lease: Hashable) -> None:
        """Fail an operation whose lease is as it was."""
        log.warning("operation abandoned", operation_id=operation_id)
        problem = problem_of(SolveAbandonedError(ABANDONED)).model_dump_json()
        with self._database.recording() as session:
            operations = OperationRepository(session)
            if operations.leases().get(operation_id) == lease:
                move(operations, operation_id, OperationState.FAILED, problem=problem)

    def _ended(self, operation_id: str, solve: _Solve) -> None:
        try:
            self._record(operation_id, solve)
        except Exception:
            log.exception("outcome not stored", operation_id=operation_id)
        finally:
            with self._lock:
                self._running.pop(operation_id, None)
            solve.recorded.set_result(None)

    def _record(self, operation_id: str, solve: _Solve) -> None:
        try:
            self._store(operation_id, solve.answer.result(), solve)
        except (CancelledError, SolveCancelledError) as error:
            if self._closing.is_set():
                self._fail(operation_id, SolveAbandonedError(ABANDONED))
                return
            log.info("solve cancelled", operation_id=operation_id, reason=str(error))
            self._end(operation_id, OperationState.CANCELLED)
        except MeshwrightError as error:
            log.warning("solve failed", operation_id=operation_id, reason=str(error))
            self._fail(operation_id, error)
        except Exception as error:
            log.exception("solve failed", operation_id=operation_id)
            self._fail(operation_id, error)

    def _store(self, operation_id: str, answer: Plan | Infeasible, solve: _Solve) -> None:
        with self._database.recording() as session:
            operations = OperationRepository(session)
            operation = operations.get(operation_id)
            if operation is None:
                return
            plans = PlanRepository(session, operation.project_id)
            known = plans.get(answer.id) or plans.answering(solve.digest)
            plan_id = answer.id if known is None else known.id
            moved = move(operations, operation_id, OperationState.SUCCEEDED, plan_id=plan_id)
            if moved and known is None:
                plans.add(plan_row(answer, request_digest=solve.digest, owner=solve.owner))

    def _fail(self, operation_id: str, error: Exception) -> None:
        self._end(operation_id, OperationState.FAILED, problem=problem_of(error).model_dump_json())

    def _end(self, operation_id: str, state: OperationState, **values: Any) -> None:
        with self._database.recording() as session:
            move(OperationRepository(session), operation_id, state, **values)


class _ProgressRecorder:
    """Writes progress down, a few times a second at most."""

    def __init__(self, database: Database, operation_id: str) -> None:
        self._database = database
        self._operation_id = operation_id
        self._phase = ""
        self._written_at = 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.phase == self._phase and now < self._written_at + _PROGRESS_SECONDS:
            return
        self._phase, self._written_at = progress.phase, now
        try:
            self._write(progress.model_dump_json())
        except Exception:
            log.exception("progress not stored", operation_id=self._operation_id)

    def _write(self, progress: str) -> None:
        with self._database.writing() as session:
            operations = OperationRepository(session)
            running = [OperationState.RUNNING]
            if operations.move(self._operation_id, allowed_from=running, progress=progress):
                operations.add_event(self._operation_id, kind="progress", data=progress)
