"""What runs measured: metrics beside predictions, logs, results, and rows for calibration."""

from __future__ import annotations

import json
import statistics
from collections.abc import Collection, Sequence

from sqlalchemy.orm import Session

from api.caller import Caller
from api.db import Database
from api.errors import NotFoundError
from api.repositories.leases import LeaseRepository
from api.repositories.measurements import MeasurementRepository
from api.repositories.runs import RunRepository
from api.run_queries import RunLogQuery, RunMetricsQuery
from api.services.measured_rows import measured_row
from api.services.run_records import predicted_run
from api.services.runs import found_run
from api.tables import LeaseLogRow, LeaseMetricRow, LeaseRow, RunRow
from planner.errors import InputError
from planner.schema.lifecycle import RunState
from planner.schema.plan import Plan
from planner.schema.run import (
    MeasuredStep,
    MeasuredSummary,
    RunLog,
    RunMetrics,
    RunResult,
)

_SUMMARY_STEPS = 200
_LOG_PIECES = 256
_LOG_BYTES = 2**20
_Step = tuple[int, float, float | None]
# A run that has not got past its warm-up says nothing about its steps.
LEAST_STEPS = 3


class RunMeasurementService:
    """What can be asked about a run's measurements."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def metrics(self, caller: Caller, run_id: str, query: RunMetricsQuery) -> RunMetrics:
        """Return rows after the cursor, what was predicted, and the newest attempt in figures.

        Raises:
            NotFoundError: if the caller's project has no such run.
            InputError: if the cursor is none of ours.
        """
        with self._database.reading() as session:
            run = found_run(session, run_id, caller)
            predicted = tuple(predicted_run(row) for row in RunRepository(session).plans(run_id))
            place = _Place.of(query.cursor)
            items = _rows_after(session, run, place, limit=query.limit)
            summary = _summary(session, run_id, run.epoch)
            if summary is not None:
                follows = [p for p in predicted if p.from_attempt <= summary.attempt][-1]
                summary = _beside(summary, follows.step_seconds.p50)
            return RunMetrics(
                predicted=predicted,
                measured=summary,
                items=tuple(items),
                next_cursor=place.text(),
            )

    def log(self, caller: Caller, run_id: str, query: RunLogQuery) -> RunLog:
        """Return a piece of what a node wrote, at most a MiB, of the newest attempt by default.

        Raises:
            NotFoundError: if the caller's project has no such run, or the run no such node.
        """
        with self._database.reading() as session:
            run = found_run(session, run_id, caller)
            attempt = run.epoch if query.attempt is None else query.attempt
            leases = LeaseRepository(session).of_epoch(run_id, attempt)
            lease = next((row for row in leases if row.node_rank == query.node), None)
            if lease is None:
                raise NotFoundError("log", f"attempt {attempt} node {query.node}")
            rows = MeasurementRepository(session).log(
                lease.id, offset=query.offset, limit=_LOG_PIECES
            )
            text, end = _piece(rows, query.offset)
            over = lease.ended_at is not None
            removed = over and not rows and query.offset < lease.log_offset
            return RunLog(
                attempt=attempt,
                node_rank=query.node,
                offset=query.offset,
                end_offset=end,
                complete=over and (removed or end >= lease.log_offset),
                removed=removed,
                text=text,
            )

    def result(self, caller: Caller, run_id: str) -> RunResult:
        """Return what node 0 of the newest attempt left behind.

        Raises:
            NotFoundError: if the caller's project has no such run.
        """
        with self._database.reading() as session:
            run = found_run(session, run_id, caller)
            leases = LeaseRepository(session).of_epoch(run_id, run.epoch)
            left = leases[0].result if leases else None
            report = None if left is None else json.loads(left)["report"]
            return RunResult(run_id=run_id, state=RunState(run.state), report=report)

    def measured_rows(self, caller: Caller, run_id: str) -> str:
        """Return the run's attempts as JSON lines that `meshwright validate` reads.

        An attempt with fewer than three measured steps says nothing about them, and has no line.

        Raises:
            NotFoundError: if the caller's project has no such run.
        """
        with self._database.reading() as session:
            run = found_run(session, run_id, caller)
            lines = []
            for attempt in range(1, run.epoch + 1):
                summary = _summary(session, run_id, attempt)
                if summary is None or summary.step_count < LEAST_STEPS:
                    continue
                document = RunRepository(session).plan_of(run_id, attempt).document
                plan = Plan.model_validate_json(document)
                lines.append(json.dumps(measured_row(plan, summary, run_id=run_id)) + "\n")
            return "".join(lines)


class _Place:
    """How far a reader of a run's metrics is: an epoch, and the rows read of each node in it.

    An epoch is over before the next begins, so nothing before a place can be added later.
    """

    def __init__(self, epoch: int, counts: list[int]) -> None:
        self.epoch = epoch
        self.counts = counts

    @classmethod
    def of(cls, text: str | None) -> _Place:
        """Return the place that a cursor stands for.

        Raises:
            InputError: if it is none of ours.
        """
        if text is None:
            return cls(1, [])
        head, _, tail = text.partition(".")
        try:
            counts = [int(part) for part in tail.split("-")] if tail else []
            place = cls(int(head), counts)
        except ValueError:
            place = cls(0, [])
        if not 1 <= place.epoch < 2**31 or any(not 0 <= c < 2**62 for c in place.counts):
            raise InputError(
                "is not a cursor of this run's metrics",
                field="cursor",
                value=text,
                remedy="use next_cursor of the page before, or leave it out",
            )
        return place

    def text(self) -> str:
        """Return the cursor that stands for the place."""
        return f"{self.epoch}.{'-'.join(str(count) for count in self.counts)}"


def _rows_after(session: Session, run: RunRow, place: _Place, *, limit: int) -> list[MeasuredStep]:
    """Return at most `limit` rows after the place, and move it behind them."""
    found: list[MeasuredStep] = []
    while True:
        leases = LeaseRepository(session).of_epoch(run.id, place.epoch)
        place.counts = (place.counts + [0] * len(leases))[: len(leases)]
        for node, lease in enumerate(leases):
            rows = MeasurementRepository(session).metrics(
                lease.id, start=place.counts[node], limit=limit - len(found)
            )
            place.counts[node] += len(rows)
            found += [_measured_step(row, place.epoch) for row in rows]
        if len(found) >= limit or place.epoch >= run.epoch:
            return found
        place.epoch, place.counts = place.epoch + 1, []


def _measured_step(row: LeaseMetricRow, attempt: int) -> MeasuredStep:
    return MeasuredStep(
        attempt=attempt,
        rank=row.rank,
        step=row.step,
        step_seconds=row.step_seconds,
        tokens_per_second=row.tokens_per_second,
        loss=row.loss,
        peak_memory_bytes=row.peak_memory_bytes,
    )


def median_step(session: Session, lease_ids: Collection[str]) -> tuple[int, float | None]:
    """Return how many of the newest steps there are, and the median seconds of those but the first.

    Each step is its slowest rank's.
    """
    steps = MeasurementRepository(session).slowest_ranks(lease_ids, limit=_SUMMARY_STEPS)
    warm = _warm(steps)
    return len(steps), statistics.median(s for _, s, _ in warm) if warm else None


def _warm(steps: Sequence[_Step]) -> Sequence[_Step]:
    """Return the steps, newest first, without the first one of the attempt."""
    return steps[:-1] if len(steps) < _SUMMARY_STEPS else steps


def _summary(session: Session, run_id: str, attempt: int) -> MeasuredSummary | None:
    """Return an attempt in figures: over its last 200 steps, and without its first."""
    leases: Sequence[LeaseRow] = LeaseRepository(session).of_epoch(run_id, attempt)
    lease_ids = [lease.id for lease in leases]
    measurements = MeasurementRepository(session)
    steps = measurements.slowest_ranks(lease_ids, limit=_SUMMARY_STEPS)
    if not steps:
        return None
    warm = _warm(steps)
    rates = [tokens for _, _, tokens in warm if tokens is not None]
    peaks = measurements.peaks(lease_ids)
    return MeasuredSummary(
        attempt=attempt,
        step_count=len(steps),
        median_step_seconds=statistics.median(s for _, s, _ in warm) if warm else None,
        median_tokens_per_second=statistics.median(rates) if rates else None,
        last_loss=measurements.last_loss(lease_ids),
        peak_memory_bytes=tuple(peaks.get(rank) for rank in range(max(peaks) + 1)),
        step_seconds_ratio=None,
    )


def _beside(summary: MeasuredSummary, predicted_seconds: float) -> MeasuredSummary:
    """Return the summary with measured over predicted seconds per step."""
    if summary.median_step_seconds is None or not predicted_seconds:
        return summary
    ratio = summary.median_step_seconds / predicted_seconds
    return summary.model_copy(update={"step_seconds_ratio": ratio})


def _piece(rows: Sequence[LeaseLogRow], offset: int) -> tuple[str, int]:
    """Return the text from byte `offset` on and where it ends, both at the bounds of characters."""
    if not rows:
        return "", offset
    content = b"".join(row.text.encode() for row in rows)
    start, end = max(offset - rows[0].position, 0), len(content)
    while start < end and _is_continuation(content[start]):
        start += 1
    if end > start + _LOG_BYTES:
        end = start + _LOG_BYTES
        while _is_continuation(content[end]):
            end -= 1
    return content[start:end].decode(), rows[0].position + end


def _is_continuation(byte: int) -> bool:
    """Return whether a byte of UTF-8 goes on with a character."""
    return byte & 0b1100_0000 == 0b1000_0000
