"""What handlers of agents and runs ask for by type."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Header, Path, Request
from fastapi.security.utils import get_authorization_scheme_param
from starlette.concurrency import run_in_threadpool

from api.agent_services import AgentServices
from api.deps import IDENTIFIER_PATTERN
from api.services.agents import AgentService
from api.services.leases import LeaseService
from api.services.run_measurements import RunMeasurementService
from api.services.runs import RunService


def agent_services(request: Request) -> AgentServices:
    """Return the services of the application that the request came to."""
    return cast("AgentServices", request.app.state.agent_services)


async def _agents(request: Request) -> AgentService:
    return agent_services(request).agents


async def _leases(request: Request) -> LeaseService:
    return agent_services(request).leases


async def _runs(request: Request) -> RunService:
    return agent_services(request).runs


async def _measurements(request: Request) -> RunMeasurementService:
    return agent_services(request).measurements


async def _authenticated_agent(request: Request) -> str:
    """Return the id of the agent whose token the request brings.

    Raises:
        AgentTokenError: if it brings none, or none of an agent's.
    """
    scheme, token = get_authorization_scheme_param(request.headers.get("authorization"))
    given = token if scheme.lower() == "bearer" else None
    return await run_in_threadpool(agent_services(request).agents.authenticated, given)


IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,200}$",
        description="A client's own name for the request; the same key with another request is "
        "refused.",
    ),
]
Agents = Annotated[AgentService, Depends(_agents)]
Leases = Annotated[LeaseService, Depends(_leases)]
Runs = Annotated[RunService, Depends(_runs)]
RunMeasurements = Annotated[RunMeasurementService, Depends(_measurements)]
AgentToken = Annotated[str, Depends(_authenticated_agent)]
AgentId = Annotated[str, Path(pattern=IDENTIFIER_PATTERN)]
LeaseId = Annotated[str, Path(pattern=IDENTIFIER_PATTERN)]
RunId = Annotated[str, Path(pattern=IDENTIFIER_PATTERN)]
