"""Leases as agents write under them: heartbeats, logs, metrics, results.

Every write is one transaction that holds the lease (and where the run's state may change, first the
run), so that what is acknowledged is committed and what is stale changes nothing.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from api.db import Database
from api.errors import NotFoundError, NotLaunchedError, ResultConflictError, StaleLeaseError
from api.repositories.agents import AgentRepository
from api.repositories.clock import current_time
from api.repositories.leases import LeaseRepository
from api.repositories.measurements import MeasurementRepository
from api.repositories.runs import RunRepository
from api.services.intervals import intervals
from api.services.run_moves import AfterStop, Ending, end_lease, later_step, move
from api.settings import Settings
from api.tables import LeaseLogRow, LeaseMetricRow, LeaseRow, RunRow
from planner.errors import InputError
from planner.schema.lease import (
    Heartbeat,
    HeartbeatAnswer,
    LeaseResult,
    LogAcknowledgement,
    LogChunk,
    MetricsAcknowledgement,
    MetricsChunk,
    ResultAcknowledgement,
)
from planner.schema.lifecycle import Actor, LeaseState, RunState, next_lease_state

# An agent polls as soon as it has put a result; until then it is counted on for this long.
_NEXT_POLL_SECONDS = 10.0


class LeaseService:
    """What an agent may do with its leases."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._intervals = intervals(settings)
        self._length = timedelta(seconds=settings.agent_lease_seconds)

    def heartbeat(self, agent_id: str, lease_id: str, beat: Heartbeat) -> HeartbeatAnswer:
        """Extend the lease, note how far the agent is, and return what it is to do.

        Raises:
            NotFoundError: if the agent never had such a lease.
            StaleLeaseError: if it has it no more.
            NotLaunchedError: if it runs what it was not told to launch.
        """
        with self._database.writing() as session:
            lease, run = _held(session, agent_id, lease_id, beat.epoch, reported=beat.state)
            self._check_launched(run, beat)
            at = current_time(session)
            lease.expires_at = at + self._length
            AgentRepository(session).heard_of(agent_id, at=at, available_until=lease.expires_at)
            _note_progress(lease, beat)
            moved = next_lease_state(LeaseState(lease.state), beat.state).value
            if moved != lease.state:
                lease.state = moved
                _note_port(run, lease, beat)
                _launch_when_all_are_ready(session, run, at=at)
            return self._answer(run, lease)

    def add_log(self, agent_id: str, lease_id: str, chunk: LogChunk) -> LogAcknowledgement:
        """Store what continues the lease's log, and return how many bytes are stored.

        Raises:
            NotFoundError: if the agent never had such a lease.
            StaleLeaseError: if it has it no more.
            InputError: if the offset lies inside a character.
        """
        with self._database.writing() as session:
            lease, _ = _held(session, agent_id, lease_id, chunk.epoch)
            fresh = _continuation(chunk, stored_bytes=lease.log_offset)
            if fresh:
                row = LeaseLogRow(
                    lease_id=lease.id,
                    position=lease.log_offset,
                    length=len(fresh.encode()),
                    text=fresh,
                )
                MeasurementRepository(session).add_log(row)
                lease.log_offset += row.length
            return LogAcknowledgement(acknowledged_offset=lease.log_offset)

    def add_metrics(
        self, agent_id: str, lease_id: str, chunk: MetricsChunk
    ) -> MetricsAcknowledgement:
        """Store the rows that continue the lease's metrics, and return how many are stored.

        Raises:
            NotFoundError: if the agent never had such a lease.
            StaleLeaseError: if it has it no more.
        """
        with self._database.writing() as session:
            lease, _ = _held(session, agent_id, lease_id, chunk.epoch)
            known_count = lease.metric_sequence - chunk.sequence
            fresh = chunk.rows[known_count:] if known_count >= 0 else ()
            MeasurementRepository(session).add_metrics(
                [
                    LeaseMetricRow(lease_id=lease.id, number=number, **row.model_dump())
                    for number, row in enumerate(fresh, lease.metric_sequence)
                ]
            )
            lease.metric_sequence += len(fresh)
            return MetricsAcknowledgement(acknowledged_sequence=lease.metric_sequence)

    def put_result(
        self, agent_id: str, lease_id: str, result: LeaseResult
    ) -> ResultAcknowledgement:
        """End the lease with `result`; the same result again changes nothing.

        Raises:
            NotFoundError: if the agent never had such a lease.
            StaleLeaseError: if it was lost before.
            ResultConflictError: if it has another result.
        """
        document = result.model_dump_json()
        digest = hashlib.sha256(document.encode()).hexdigest()
        with self._database.writing() as session:
            lease, run = _locked(session, agent_id, lease_id, with_run=True)
            if lease.result_digest is not None:
                return _repeated(lease, digest)
            _check_live(lease, run, result.epoch)
            at = current_time(session)
            lease.result_digest, lease.result = digest, document
            until = at + timedelta(seconds=_NEXT_POLL_SECONDS)
            gone = result.outcome is LeaseState.STOPPED and run.state != RunState.STOPPING
            AgentRepository(session).heard_of(
                agent_id, at=at, available_until=None if gone else until
            )
            lease.checkpoint_step = later_step(lease.checkpoint_step, result.checkpoint_step)
            end_lease(session, run, lease, _ending(result), at=at)
            return ResultAcknowledgement(state=LeaseState(lease.state))

    def _check_launched(self, run: RunRow, beat: Heartbeat) -> None:
        if beat.state is LeaseState.RUNNING and run.state == RunState.STARTING:
            raise NotLaunchedError(
                f"run {run.id} is {run.state}: launch when an answer says go, not before"
            )

    def _answer(self, run: RunRow, lease: LeaseRow) -> HeartbeatAnswer:
        stopping = run.state not in {RunState.STARTING, RunState.RUNNING}
        reason = "the run was cancelled" if run.cancel_requested else run.reason
        return HeartbeatAnswer(
            state=LeaseState(lease.state),
            go=run.state == RunState.RUNNING,
            stop=stopping,
            stop_reason=reason if stopping else None,
            cancel_requested=run.cancel_requested,
            master_address=run.master_address or "",
            master_port=run.master_port or 0,
            intervals=self._intervals,
        )


def _held(
    session: Session,
    agent_id: str,
    lease_id: str,
    epoch: int,
    *,
    reported: LeaseState | None = None,
) -> tuple[LeaseRow, RunRow]:
    """Return the lease, locked, and its run: locked as well where the report moves the lease."""
    known = _known(session, agent_id, lease_id)
    held = LeaseState(known.state)
    moves = reported is not None and next_lease_state(held, reported) is not held
    lease, run = _locked(session, agent_id, lease_id, with_run=moves)
    _check_live(lease, run, epoch)
    return lease, run


def _locked(
    session: Session, agent_id: str, lease_id: str, *, with_run: bool
) -> tuple[LeaseRow, RunRow]:
    """Return the lease, locked, and its run. Whoever locks both locks the run first."""
    run_id = _known(session, agent_id, lease_id).run_id
    runs = RunRepository(session)
    run = runs.locked(run_id) if with_run else runs.get(run_id)
    lease = LeaseRepository(session).locked(lease_id)
    if run is None:
        raise NotFoundError("run", run_id)
    return lease, run


def _known(session: Session, agent_id: str, lease_id: str) -> LeaseRow:
    lease = LeaseRepository(session).get(lease_id)
    if lease is None or lease.agent_id != agent_id:
        raise NotFoundError("lease of this agent", lease_id)
    return lease


def _check_live(lease: LeaseRow, run: RunRow, epoch: int) -> None:
    if epoch != lease.epoch or epoch != run.epoch:
        raise StaleLeaseError(
            f"epoch {epoch} of lease {lease.id} is not the run's, which is {run.epoch}"
        )
    if lease.ended_at is not None:
        raise StaleLeaseError(f"lease {lease.id} is over: it {lease.state}")


def _note_progress(lease: LeaseRow, beat: Heartbeat) -> None:
    """Keep how far the lease is; reports that were overtaken take nothing back."""
    if beat.progress is not None:
        lease.step = later_step(lease.step, beat.progress.step)
        lease.checkpoint_step = later_step(lease.checkpoint_step, beat.progress.checkpoint_step)


def _note_port(run: RunRow, lease: LeaseRow, beat: Heartbeat) -> None:
    if beat.master_port is not None and lease.node_rank == 0 and run.state == RunState.STARTING:
        run.master_port = beat.master_port


def _launch_when_all_are_ready(session: Session, run: RunRow, *, at: datetime) -> None:
    session.flush()
    leases = LeaseRepository(session).of_epoch(run.id, run.epoch)
    if run.state == RunState.STARTING and all(lease.state == LeaseState.READY for lease in leases):
        text = "every agent is ready: launched"
        move(session, run, RunState.RUNNING, actor=Actor.AGENT, text=text, at=at)


def _continuation(chunk: LogChunk, *, stored_bytes: int) -> str:
    """Return the part of the chunk that comes after what is stored; nothing if there is a gap."""
    content = chunk.text.replace("\0", "\x1a").encode()
    known = stored_bytes - chunk.offset
    if known < 0:
        return ""
    try:
        return content[known:].decode()
    except UnicodeDecodeError:
        raise InputError(
            "lies inside a character of what is stored already",
            field="offset",
            value=chunk.offset,
            remedy=f"send from byte {stored_bytes} on",
        ) from None


def _repeated(lease: LeaseRow, digest: str) -> ResultAcknowledgement:
    if lease.result_digest != digest:
        raise ResultConflictError(f"lease {lease.id} has another result: it {lease.state}")
    return ResultAcknowledgement(state=LeaseState(lease.state))


def _ending(result: LeaseResult) -> Ending:
    reason = result.reason
    if result.failed_rank is not None:
        reason = f"rank {result.failed_rank}: {reason or 'no reason given'}"
    return Ending(
        state=result.outcome,
        reason=reason,
        actor=Actor.AGENT,
        after_stop=_after_stop(result),
    )


def _after_stop(result: LeaseResult) -> AfterStop:
    if result.outcome is not LeaseState.FAILED:
        return AfterStop.RESUME
    return AfterStop.GIVE_UP if result.refused else AfterStop.RESTART
