"""What tests ask of the service's solves: submit, wait for an event, wait for the end."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi.testclient import TestClient

from api.services.operations import OperationService
from planner.schema.service import Operation
from tests.contract.api.callers import LOCAL

# The load of a machine decides nothing: a request waits for its solve as long as that takes.
PATIENCE_SECONDS = 600
PATIENT = {"Prefer": f"wait={PATIENCE_SECONDS}"}
DYING, ENDLESS, REFUSED, BROKEN, INFEASIBLE = 13, 17, 19, 23, 1


def a_request(global_batch_size: int = 16, **changes: Any) -> dict[str, Any]:
    """A request for the tiny model on eight H100."""
    return {
        "model": "tiny",
        "cluster": "8xh100-sxm5-80gb",
        "job": {"global_batch_size": global_batch_size},
        **changes,
    }


def a_stored_plan(client: TestClient, global_batch_size: int = 16) -> str:
    """Have a plan made and return its id."""
    answer = client.post("/v1/plans", json=a_request(global_batch_size), headers=PATIENT)
    identifier: str = answer.json()["id"]
    return identifier


def a_running_solve(client: TestClient) -> str:
    """Have a solve started that never ends; return its operation's id once it has begun."""
    answer = client.post("/v1/plans", json=a_request(ENDLESS), headers={"Prefer": "wait=0"})
    assert answer.status_code == 202
    identifier: str = answer.json()["id"]
    asyncio.run(_first_progress(service(client), identifier))
    return identifier


def ended(client: TestClient, operation_id: str) -> Operation:
    """Return the operation once it has ended."""
    return asyncio.run(service(client).finished(LOCAL, operation_id, wait_seconds=PATIENCE_SECONDS))


def service(client: TestClient) -> OperationService:
    """Return the application's own service."""
    found: OperationService = client.app.state.services.operations  # type: ignore[attr-defined]
    return found


def process_ids(client: TestClient) -> tuple[int, ...]:
    """Return the processes that solve now."""
    found: tuple[int, ...] = client.app.state.pool.process_ids()  # type: ignore[attr-defined]
    return found


async def _first_progress(operations: OperationService, operation_id: str) -> None:
    async for event in operations.follow(LOCAL, operation_id):
        if event.kind == "progress":
            return
