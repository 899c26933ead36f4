"""/v1/leases: what agents write under a lease."""

from __future__ import annotations

from fastapi import APIRouter

from api.deps_agents import AgentToken, LeaseId, Leases
from api.problems import documented
from api.routes.documents import DocumentRoute
from planner.schema.lease import (
    Heartbeat,
    HeartbeatAnswer,
    LeaseResult,
    LogAcknowledgement,
    LogChunk,
    MetricsAcknowledgement,
    MetricsChunk,
    ResultAcknowledgement,
)

router = APIRouter(prefix="/v1/leases", tags=["leases"], route_class=DocumentRoute)

_REFUSALS = documented(404, 409, 413, 415)


@router.patch("/{lease_id}", responses=_REFUSALS)
def heartbeat(
    agent_id: AgentToken, lease_id: LeaseId, beat: Heartbeat, leases: Leases
) -> HeartbeatAnswer:
    """Extend a lease, say how far the agent is, and learn what it is to do."""
    return leases.heartbeat(agent_id, lease_id, beat)


@router.post("/{lease_id}/logs", responses=_REFUSALS)
def add_log(
    agent_id: AgentToken, lease_id: LeaseId, chunk: LogChunk, leases: Leases
) -> LogAcknowledgement:
    """Store what continues the lease's log; the answer says how many bytes are stored."""
    return leases.add_log(agent_id, lease_id, chunk)


@router.post("/{lease_id}/metrics", responses=_REFUSALS)
def add_metrics(
    agent_id: AgentToken, lease_id: LeaseId, chunk: MetricsChunk, leases: Leases
) -> MetricsAcknowledgement:
    """Store the rows that continue the lease's metrics; the answer says how many are stored."""
    return leases.add_metrics(agent_id, lease_id, chunk)


@router.put("/{lease_id}/result", responses=_REFUSALS)
def put_result(
    agent_id: AgentToken, lease_id: LeaseId, result: LeaseResult, leases: Leases
) -> ResultAcknowledgement:
    """End a lease; the same result again changes nothing."""
    return leases.put_result(agent_id, lease_id, result)
