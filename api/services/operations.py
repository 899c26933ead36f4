"""Operations as clients see them: looked at, followed, waited for, cancelled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from starlette.concurrency import run_in_threadpool

from api.caller import Caller
from api.db import Database
from api.errors import AlreadyFinishedError, NotFoundError
from api.repositories.audit import AuditRepository
from api.repositories.operations import OperationRepository
from api.schemas import OperationEvent
from api.services.records import event_of, operation_of
from api.services.solves import Solves
from api.services.transitions import move
from api.tables import OperationRow
from planner.schema.service import Operation, OperationState

_POLL_SECONDS = 0.1


class OperationService:
    """What can be asked of an operation; any process of the service can answer."""

    def __init__(self, database: Database, solves: Solves) -> None:
        self._database = database
        self._solves = solves

    def get(self, caller: Caller, operation_id: str) -> Operation:
        """Return the operation.

        Raises:
            NotFoundError: if the caller's project has none with that id.
        """
        with self._database.reading() as session:
            return operation_of(_found(OperationRepository(session), operation_id, caller))

    def cancel(self, caller: Caller, operation_id: str) -> Operation:
        """End the solve and return the operation; cancelling twice is the same as once.

        Raises:
            NotFoundError: if the caller's project has none with that id.
            AlreadyFinishedError: if it has ended otherwise.
        """
        with self._database.writing() as session:
            operations = OperationRepository(session)
            _found(operations, operation_id, caller)
            if move(operations, operation_id, OperationState.CANCELLED):
                AuditRepository(session).add(
                    caller, action="operation.cancel", subject=operation_id
                )
            session.expire_all()
            operation = operation_of(_found(operations, operation_id, caller))
        if operation.state is not OperationState.CANCELLED:
            raise AlreadyFinishedError(f"operation {operation_id}", operation.state.value)
        self._solves.stop(operation_id)
        return operation

    async def finished(
        self, caller: Caller, operation_id: str, *, wait_seconds: float
    ) -> Operation:
        """Return the operation as soon as it ends, or as it is once the wait is over."""
        deadline = time.monotonic() + wait_seconds
        recorded = self._solves.recorded(operation_id)
        if recorded is not None:
            await asyncio.wait({asyncio.wrap_future(recorded)}, timeout=wait_seconds)
        operation = await run_in_threadpool(self.get, caller, operation_id)
        while operation.state is OperationState.RUNNING and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
            operation = await run_in_threadpool(self.get, caller, operation_id)
        return operation

    async def follow(
        self, caller: Caller, operation_id: str, *, after: int = 0
    ) -> AsyncIterator[OperationEvent]:
        """Yield the events numbered above `after`, as they happen, until the operation ends."""
        finished = False
        while not finished:
            finished, events = await run_in_threadpool(self._news, caller, operation_id, after)
            for event in events:
                yield event
                after = event.number
            if not finished:
                await asyncio.sleep(_POLL_SECONDS)

    def _news(
        self, caller: Caller, operation_id: str, after: int
    ) -> tuple[bool, list[OperationEvent]]:
        """Return whether the operation has ended, and then its events: none can be missed."""
        with self._database.reading() as session:
            operations = OperationRepository(session)
            state = _found(operations, operation_id, caller).state
            events = operations.events(operation_id, after=after)
            return state != OperationState.RUNNING, [event_of(row) for row in events]


def _found(operations: OperationRepository, operation_id: str, caller: Caller) -> OperationRow:
    row = operations.get(operation_id)
    if row is None or row.project_id != caller.project_id:
        raise NotFoundError("operation", operation_id)
    return row
