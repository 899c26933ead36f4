"""What handlers of agents and runs ask for by type."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Path, Request
from fastapi.security.utils import get_authorization_scheme_param
from starlette.concurrency import run_in_threadpool

from api.agent_services import AgentServices
from api.deps import Part, client_address
from api.services.agents import AgentService
from api.services.fleet_history import FleetHistoryService
from api.services.leases import LeaseService
from api.services.run_measurements import RunMeasurementService
from api.services.runs import RunService
from api.services.tunings import TuningService
from planner.schema.agent import Identifier


def agent_services(request: Request) -> AgentServices:
    """Return the services of the application that the request came to."""
    return cast("AgentServices", request.app.state.agent_services)


async def _authenticated_agent(request: Request) -> str:
    """Return the id of the agent whose token the request brings.

    Raises:
        AgentTokenError: if it brings none, or none of an agent's.
    """
    scheme, token = get_authorization_scheme_param(request.headers.get("authorization"))
    given = token if scheme.lower() == "bearer" else None
    return await run_in_threadpool(agent_services(request).agents.authenticated, given)


Agents = Annotated[AgentService, Depends(Part(lambda request: agent_services(request).agents))]
Leases = Annotated[LeaseService, Depends(Part(lambda request: agent_services(request).leases))]
Runs = Annotated[RunService, Depends(Part(lambda request: agent_services(request).runs))]
RunMeasurements = Annotated[
    RunMeasurementService, Depends(Part(lambda request: agent_services(request).measurements))
]
FleetHistory = Annotated[
    FleetHistoryService, Depends(Part(lambda request: agent_services(request).history))
]
Tunings = Annotated[TuningService, Depends(Part(lambda request: agent_services(request).tunings))]
ClientAddress = Annotated[str, Depends(Part(client_address))]
AgentToken = Annotated[str, Depends(_authenticated_agent)]
AgentId = Annotated[Identifier, Path()]
LeaseId = Annotated[Identifier, Path()]
RunId = Annotated[Identifier, Path()]
TuningId = Annotated[Identifier, Path()]
