"""Pruning: what ended long ago is forgotten. Plans and the audit log stay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import structlog

from api.db import Database
from api.repositories.operations import OperationRepository
from api.repositories.plans import forget_idempotency_keys
from api.settings import Settings

_BATCH = 500

log = structlog.get_logger(__name__)


class Pruning:
    """Forgets in batches, so that nobody waits long for the write lock."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._kept = timedelta(days=settings.finished_operation_days)
        self._keys_kept = timedelta(days=settings.idempotency_key_days)

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
        with self._database.writing() as session:
            forget_idempotency_keys(session, created_before=at - self._keys_kept)
        if gone:
            log.info("operations pruned", count=gone)
        return gone
