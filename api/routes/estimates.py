"""/v1/estimates."""

from __future__ import annotations

from fastapi import APIRouter

from api.deps import Estimates, PlanCaller
from api.problems import documented
from api.routes.documents import DocumentRoute
from api.schemas import EstimateRequest
from planner.schema.plan import Estimate

router = APIRouter(prefix="/v1/estimates", tags=["estimates"], route_class=DocumentRoute)


@router.post("", responses=documented(413, 415))
def create_estimate(_: PlanCaller, request: EstimateRequest, estimates: Estimates) -> Estimate:
    """Price a strategy; nothing is stored."""
    return estimates.estimate(request)
