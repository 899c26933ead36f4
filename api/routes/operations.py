"""/v1/operations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.sse import EventSourceResponse, ServerSentEvent

from api.deps import LastEventNumber, OperationId, Operations, PlanCaller, Reader
from api.problems import documented
from api.routes.documents import DocumentRoute
from planner.schema.service import Operation

router = APIRouter(prefix="/v1/operations", tags=["operations"], route_class=DocumentRoute)


def _operation(caller: Reader, operation_id: OperationId, operations: Operations) -> Operation:
    return operations.get(caller, operation_id)


Found = Annotated[Operation, Depends(_operation)]


@router.get("/{operation_id}", responses=documented(404))
def read_operation(caller: Reader, operation_id: OperationId, operations: Operations) -> Operation:
    """Return how far a solve is, or what came of it."""
    return operations.get(caller, operation_id)


@router.get(
    "/{operation_id}/events",  # noqa: FAST003 - the dependency takes it, so that 404 comes first
    response_class=EventSourceResponse,
    responses=documented(404),
)
async def follow_operation(
    caller: Reader, operation: Found, operations: Operations, after: LastEventNumber
) -> AsyncIterator[ServerSentEvent]:
    """Stream what happens, until the solve ends: events `state` and `progress`."""
    async for event in operations.follow(caller, operation.id, after=after):
        yield ServerSentEvent(raw_data=event.data, event=event.kind, id=str(event.number))


@router.delete("/{operation_id}", responses=documented(404, 409))
def cancel_operation(
    caller: PlanCaller, operation_id: OperationId, operations: Operations
) -> Operation:
    """End a solve."""
    return operations.cancel(caller, operation_id)
