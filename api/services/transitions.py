"""Which state of an operation may follow which; nothing changes a state but through `move`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from api.repositories.operations import OperationRepository
from planner.schema.service import OperationState

TRANSITIONS: dict[OperationState, frozenset[OperationState]] = {
    OperationState.RUNNING: frozenset(
        {OperationState.SUCCEEDED, OperationState.FAILED, OperationState.CANCELLED}
    ),
    OperationState.SUCCEEDED: frozenset(),
    OperationState.FAILED: frozenset(),
    OperationState.CANCELLED: frozenset(),
}


def move(
    operations: OperationRepository, operation_id: str, state: OperationState, **values: Any
) -> bool:
    """End the operation in `state` and tell its followers; return whether that was allowed."""
    sources = [source for source, targets in TRANSITIONS.items() if state in targets]
    moved = operations.move(
        operation_id, allowed_from=sources, state=state, finished_at=datetime.now(UTC), **values
    )
    if moved:
        operations.add_event(operation_id, kind="state", data=f'{{"state": "{state.value}"}}')
    return moved
