"""A request, understood: what the planner needs, and what says which others equal it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from api.schemas import PlanRequest
from api.services.planner import Planner
from planner.schema.job import Job
from planner.schema.plan import ResolvedCluster, ResolvedModel

_REMEMBERED_COUNT = 256
_REMEMBERED_LENGTH = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRequest:
    """Model, cluster and job, ready to plan. Equal requests have the same `digest`."""

    model: ResolvedModel
    cluster: ResolvedCluster
    job: Job
    digest: str


def resolved_request(planner: Planner, request: PlanRequest) -> ResolvedRequest:
    """Return the request with its names looked up and its documents read.

    The same request, asked for again and again, is understood once.

    Raises:
        InputError: if a name is unknown, a field is bad, or the parts do not go together.
    """
    text = request.model_dump_json(include={"model", "cluster", "job"})
    if len(text) > _REMEMBERED_LENGTH:
        return _resolved(planner, request)
    return _remembered(planner, _Request(text=text, fields=request))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A request that equals another of the same text."""

    text: str
    fields: PlanRequest = field(compare=False)


@lru_cache(maxsize=_REMEMBERED_COUNT)
def _remembered(planner: Planner, request: _Request) -> ResolvedRequest:
    return _resolved(planner, request.fields)


def _resolved(planner: Planner, request: PlanRequest) -> ResolvedRequest:
    model = planner.resolved_model(request.model)
    cluster = planner.resolved_cluster(request.cluster)
    digest = planner.request_id(model, cluster, request.job)
    return ResolvedRequest(model=model, cluster=cluster, job=request.job, digest=digest)
