"""A request, understood: what the planner needs, and the digest that says which others equal it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib.metadata import version

from api.schemas import PlanRequest
from api.services.planner import Planner
from planner.schema.job import Job
from planner.schema.plan import ResolvedCluster, ResolvedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRequest:
    """Model, cluster and job, ready to plan."""

    model: ResolvedModel
    cluster: ResolvedCluster
    job: Job

    def digest(self) -> str:
        """Return the SHA-256 that equal requests to this version of the planner share."""
        parts = [
            self.model.digest,
            self.cluster.digest,
            self.job.digest(),
            version("meshwright"),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def resolved_request(planner: Planner, request: PlanRequest) -> ResolvedRequest:
    """Return the request with its names looked up and its documents read.

    Raises:
        InputError: if a name is unknown or a field is bad.
    """
    return ResolvedRequest(
        model=planner.resolved_model(request.model),
        cluster=planner.resolved_cluster(request.cluster),
        job=request.job,
    )
