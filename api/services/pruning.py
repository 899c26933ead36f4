"""Pruning: what ended long ago is forgotten. Plans and the audit log stay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import structlog

from api.db import Database
from api.repositories.measurements import Measured, MeasurementRepository
from api.repositories.operations import OperationRepository
from api.repositories.plans import forget_idempotency_keys
from api.repositories.spent_tokens import SpentTokenRepository
from api.settings import Settings
from api.tables import LeaseLogRow, LeaseMetricRow

_BATCH = 500
_ROWS = 5000

log = structlog.get_logger(__name__)


class Pruning:
    """Forgets in batches, so that nobody waits long for the write lock."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._kept = timedelta(days=settings.finished_operation_days)
        self._keys_kept = timedelta(days=settings.idempotency_key_days)
        self._logs_kept = timedelta(days=settings.run_log_days)
        self._metrics_kept = timedelta(days=settings.run_metric_days)

    def prune(self, now: datetime | None = None) -> int:
        """Forget what ended too long before `now`; return how many operations that were."""
        at = now or datetime.now(UTC)
        gone = 0
        while True:
            with self._database.writing() as session:
                found = OperationRepository(session).forget(
                    finished_before=at - self._kept, limit=_BATCH
                )
            gone += found
            if found < _BATCH:
                break
        self._forget_measured(LeaseLogRow, ended_before=at - self._logs_kept)
        self._forget_measured(LeaseMetricRow, ended_before=at - self._metrics_kept)
        with self._database.writing() as session:
            forget_idempotency_keys(session, created_before=at - self._keys_kept)
            SpentTokenRepository(session).forget(expired_before=at)
        if gone:
            log.info("operations pruned", count=gone)
        return gone

    def _forget_measured(self, kind: Measured, *, ended_before: datetime) -> None:
        """Forget what leases of runs that ended before then wrote; never that of a live run."""
        with self._database.reading() as session:
            lease_ids = MeasurementRepository(session).leases_with(kind, ended_before=ended_before)
        for lease_id in lease_ids:
            found = _ROWS
            while found == _ROWS:
                with self._database.writing() as session:
                    found = MeasurementRepository(session).forget(kind, lease_id, limit=_ROWS)
        if lease_ids:
            log.info("logs or metrics pruned", kind=kind.__tablename__, leases=len(lease_ids))
