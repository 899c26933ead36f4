"""/v1/agents and /v1/enrolment-tokens."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from api.deps import Administrator, Reader
from api.deps_agents import AgentId, Agents, AgentToken, ClientAddress
from api.problems import documented
from api.routes.documents import DocumentRoute
from api.run_queries import AgentQuery
from planner.schema.agent import (
    Agent,
    AgentPage,
    AgentReport,
    Enrolment,
    EnrolmentRequest,
    EnrolmentToken,
    EnrolmentTokenRequest,
)
from planner.schema.lease import Lease

router = APIRouter(prefix="/v1", tags=["agents"], route_class=DocumentRoute)

WAIT_SECONDS_LIMIT = 60.0
_NOTHING: dict[int | str, dict[str, Any]] = {
    204: {"description": "There is nothing to do: ask again."}
}
WaitSeconds = Annotated[float, Query(ge=0, le=WAIT_SECONDS_LIMIT)]


@router.post("/enrolment-tokens", status_code=201, responses=documented(413, 415))
def create_enrolment_token(
    caller: Administrator, request: EnrolmentTokenRequest, agents: Agents
) -> EnrolmentToken:
    """Make a token that one agent may enrol with, once; it is shown in this answer alone."""
    return agents.make_enrolment_token(caller, request)


@router.post("/agents", status_code=201, responses=documented(413, 415))
def enrol_agent(request: EnrolmentRequest, agents: Agents, source: ClientAddress) -> Enrolment:
    """Enrol an agent by a one-time token; its own token is shown in this answer alone."""
    return agents.enrol(request, address=source)


@router.get("/agents", responses=documented())
def list_agents(caller: Reader, agents: Agents, query: Annotated[AgentQuery, Query()]) -> AgentPage:
    """List agents, by name."""
    return agents.list(caller, query)


@router.get("/agents/{agent_id}", responses=documented(404))
def read_agent(caller: Reader, agent_id: AgentId, agents: Agents) -> Agent:
    """Return an agent."""
    return agents.get(caller, agent_id)


@router.put("/agents/{agent_id}", responses=documented(404, 413, 415))
def report_agent(
    holder_id: AgentToken, agent_id: AgentId, report: AgentReport, agents: Agents
) -> Agent:
    """Replace what an agent says of itself; for the agent alone."""
    return agents.report(holder_id, agent_id, report)


@router.delete("/agents/{agent_id}", status_code=204, responses=documented(404))
def revoke_agent(caller: Administrator, agent_id: AgentId, agents: Agents) -> None:
    """Make an agent's token void; what it runs is lost when its lease expires."""
    agents.revoke(caller, agent_id)


@router.post(
    "/agents/{agent_id}/leases",
    response_model=Lease,
    responses={**_NOTHING, **documented(404)},
)
async def next_lease(
    holder_id: AgentToken, agent_id: AgentId, agents: Agents, wait: WaitSeconds = 0.0
) -> Response:
    """Answer with the agent's lease as soon as there is one, or with nothing after the wait."""
    lease = await agents.next_lease(holder_id, agent_id, wait_seconds=wait)
    if lease is None:
        return Response(status_code=204)
    return Response(lease.model_dump_json(), media_type="application/json")
