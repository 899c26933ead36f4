"""A request, understood: what the planner needs, and what says which others equal it."""

from __future__ import annotations

from dataclasses import dataclass

from api.schemas import PlanRequest
from api.services.planner import Planner
from planner.schema.job import Job
from planner.schema.plan import ResolvedCluster, ResolvedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRequest:
    """Model, cluster and job, ready to plan. Equal requests have the same `digest`."""

    model: ResolvedModel
    cluster: ResolvedCluster
    job: Job
    digest: str


def resolved_request(planner: Planner, request: PlanRequest) -> ResolvedRequest:
    """Return the request with its names looked up and its documents read.

    Raises:
        InputError: if a name is unknown, a field is bad, or the parts do not go together.
    """
    model = planner.resolved_model(request.model)
    cluster = planner.resolved_cluster(request.cluster)
    digest = planner.request_id(model, cluster, request.job)
    return ResolvedRequest(model=model, cluster=cluster, job=request.job, digest=digest)
