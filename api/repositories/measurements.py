"""What agents wrote under leases: logs and metrics."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from api.tables import LeaseLogRow, LeaseMetricRow, LeaseRow, RunRow

Measured = type[LeaseLogRow] | type[LeaseMetricRow]


class MeasurementRepository:
    """Logs and metrics by lease."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add_log(self, row: LeaseLogRow) -> None:
        """Store a piece of a log."""
        self._session.add(row)

    def add_metrics(self, rows: Collection[LeaseMetricRow]) -> None:
        """Store rows of metrics."""
        self._session.add_all(rows)

    def log(self, lease_id: str, *, offset: int, limit: int) -> Sequence[LeaseLogRow]:
        """Return the pieces that hold bytes from `offset` on, at most `limit` of them."""
        return self._session.scalars(
            select(LeaseLogRow)
            .where(
                LeaseLogRow.lease_id == lease_id,
                LeaseLogRow.position + LeaseLogRow.length > offset,
            )
            .order_by(LeaseLogRow.position)
            .limit(limit)
        ).all()

    def leases_with(self, kind: Measured, *, ended_before: datetime) -> Sequence[str]:
        """Return the leases with such rows whose runs, and so they themselves, ended before."""
        return self._session.scalars(
            select(LeaseRow.id)
            .join(RunRow, RunRow.id == LeaseRow.run_id)
            .where(
                RunRow.finished_at < ended_before,
                LeaseRow.ended_at.is_not(None),
                select(kind.lease_id).where(kind.lease_id == LeaseRow.id).exists(),
            )
            .order_by(RunRow.finished_at)
        ).all()

    def forget(self, kind: Measured, lease_id: str, *, limit: int) -> int:
        """Remove at most `limit` of a lease's rows; return how many those were."""
        place = LeaseLogRow.position if kind is LeaseLogRow else LeaseMetricRow.number
        some = select(place).where(kind.lease_id == lease_id).order_by(place).limit(limit)
        gone = self._session.execute(
            delete(kind).where(kind.lease_id == lease_id, place.in_(some)).returning(place)
        )
        return len(gone.all())

    def metrics(self, lease_id: str, *, start: int, limit: int) -> Sequence[LeaseMetricRow]:
        """Return the lease's rows from number `start` on, at most `limit` of them."""
        return self._session.scalars(
            select(LeaseMetricRow)
            .where(LeaseMetricRow.lease_id == lease_id, LeaseMetricRow.number >= start)
            .order_by(LeaseMetricRow.number)
            .limit(limit)
        ).all()

    def slowest_ranks(
        self, lease_ids: Collection[str], *, limit: int
    ) -> Sequence[tuple[int, float, float | None]]:
        """Return step, slowest rank's seconds and tokens/s of the newest `limit` steps."""
        rows = self._session.execute(
            select(
                LeaseMetricRow.step,
                func.max(LeaseMetricRow.step_seconds),
                func.min(LeaseMetricRow.tokens_per_second),
            )
            .where(LeaseMetricRow.lease_id.in_(lease_ids))
            .group_by(LeaseMetricRow.step)
            .order_by(LeaseMetricRow.step.desc())
            .limit(limit)
        )
        return [(row[0], row[1], row[2]) for row in rows]

    def peaks(self, lease_ids: Collection[str]) -> dict[int, int | None]:
        """Return each rank's highest peak of memory."""
        rows = self._session.execute(
            select(LeaseMetricRow.rank, func.max(LeaseMetricRow.peak_memory_bytes))
            .where(LeaseMetricRow.lease_id.in_(lease_ids))
            .group_by(LeaseMetricRow.rank)
            .order_by(LeaseMetricRow.rank)
        )
        return {row[0]: row[1] for row in rows}

    def last_loss(self, lease_ids: Collection[str]) -> float | None:
        """Return the loss of the last step that has one."""
        return self._session.scalar(
            select(LeaseMetricRow.loss)
            .where(LeaseMetricRow.lease_id.in_(lease_ids), LeaseMetricRow.loss.is_not(None))
            .order_by(LeaseMetricRow.step.desc())
            .limit(1)
        )
