"""/v1/plans/{plan_id}/analyses."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from api.deps import Analyses, PlanCaller, PlanId, Reader
from api.plan_schemas import AnalysisRequest, PlanAnalysis, PlanAnalysisList
from api.problems import documented
from api.routes.documents import DocumentRoute

router = APIRouter(prefix="/v1/plans/{plan_id}/analyses", tags=["plans"], route_class=DocumentRoute)

_OK = 200
_KNOWN: dict[int | str, dict[str, Any]] = {
    200: {"model": PlanAnalysis, "description": "The answer was known before."},
}


@router.get("", responses=documented(404))
def list_analyses(caller: Reader, plan_id: PlanId, analyses: Analyses) -> PlanAnalysisList:
    """List what was asked about a plan, with answers and how far those are that have none yet."""
    return analyses.documents(caller, plan_id)


@router.post("", status_code=202, responses={**_KNOWN, **documented(404, 413, 415)})
def create_analysis(
    *,
    caller: PlanCaller,
    plan_id: PlanId,
    analyses: Analyses,
    request: AnalysisRequest,
    response: Response,
) -> PlanAnalysis:
    """Have a question worked out: why a plan is so, why not otherwise, and what else could be had.

    It takes up to a minute, and is kept with the plan. Ask again, or list, for the answer.
    """
    asked = request.asked()
    analyses.start(caller, plan_id, request.kind, asked=asked)
    found = analyses.document(caller, plan_id, request.kind, asked=asked)
    if found.state != "running":
        response.status_code = _OK
    return found


@router.post("/cancel", status_code=204, responses=documented(404, 413, 415))
def cancel_analysis(
    caller: PlanCaller, plan_id: PlanId, analyses: Analyses, request: AnalysisRequest
) -> None:
    """End the search for an answer; what is answered, or was not asked, stays as it is."""
    analyses.cancel(caller, plan_id, request.kind, asked=request.asked())
