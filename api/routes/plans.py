"""/v1/plans."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from api.deps import IfMatch, PlanCaller, PlanId, Plans, Reader, SubmissionHeaders
from api.problems import documented
from api.routes.documents import DocumentRoute
from api.schemas import PlanLabelsChange, PlanQuery, PlanRequest
from api.services.plans import Answered
from api.services.records import StoredPlan, labels_tag
from planner.answers.comparison import Comparison
from planner.schema.plan import Infeasible, Plan
from planner.schema.service import Operation, PlanLabels, PlanPage

router = APIRouter(prefix="/v1/plans", tags=["plans"], route_class=DocumentRoute)

Answer = Plan | Infeasible
_CREATED: dict[int | str, dict[str, Any]] = {
    200: {"model": Answer, "description": "The answer was known before."},
    202: {"model": Operation, "description": "The solve goes on: see Location."},
}


@router.post(
    "",
    status_code=201,
    response_model=Answer,
    responses={**_CREATED, **documented(409, 413, 415, 429, 504)},
)
async def create_plan(
    caller: PlanCaller, request: PlanRequest, plans: Plans, options: SubmissionHeaders
) -> Response:
    """Find the best plan; an infeasible job is an answer too, and kept like a plan."""
    outcome = await plans.submit(
        caller,
        request,
        idempotency_key=options.idempotency_key,
        wait_seconds=options.wait_seconds,
    )
    if isinstance(outcome, Answered):
        return _plan_response(outcome.plan, status=201 if outcome.is_new else 200)
    return _operation_response(outcome)


@router.get("", response_model=PlanPage, responses=documented())
def list_plans(caller: Reader, plans: Plans, query: Annotated[PlanQuery, Query()]) -> Response:
    """List plans, the newest first."""
    return Response(plans.list_json(caller, query), media_type="application/json")


@router.get("/compare", responses=documented(404))
def compare_plans(
    caller: Reader, plans: Plans, plan: Annotated[list[str], Query(min_length=2, max_length=6)]
) -> Comparison:
    """Show what differs between plans, with deltas to the first."""
    return plans.compare(caller, plan)


@router.get(
    "/{plan_id}",
    response_model=Answer,
    responses=documented(404),
)
def read_plan(caller: Reader, plan_id: PlanId, plans: Plans) -> Response:
    """Return a plan or an infeasible answer."""
    return _plan_response(plans.get(caller, plan_id), status=200)


@router.get("/{plan_id}/labels", response_model=PlanLabels, responses=documented(404))
def read_plan_labels(caller: Reader, plan_id: PlanId, plans: Plans) -> Response:
    """Return what people call a plan and wrote beside it."""
    return _labels_response(plans.get(caller, plan_id).labels)


@router.patch(
    "/{plan_id}/labels", response_model=PlanLabels, responses=documented(404, 412, 413, 415)
)
def label_plan(
    *,
    caller: PlanCaller,
    plan_id: PlanId,
    change: PlanLabelsChange,
    plans: Plans,
    if_match: IfMatch = None,
) -> Response:
    """Change the name, notes or tags of a plan; what is left out stays."""
    return _labels_response(plans.label(caller, plan_id, change, if_match=if_match))


@router.delete("/{plan_id}", status_code=204, responses=documented(404))
def delete_plan(caller: PlanCaller, plan_id: PlanId, plans: Plans) -> None:
    """Remove a plan: your own, or one that nobody owns; with the scope `admin`, any."""
    plans.delete(caller, plan_id)


def _operation_response(operation: Operation) -> Response:
    return Response(
        operation.model_dump_json(),
        status_code=202,
        media_type="application/json",
        headers={"Location": f"/v1/operations/{operation.id}"},
    )


def _labels_response(labels: PlanLabels) -> Response:
    return Response(
        labels.model_dump_json(),
        media_type="application/json",
        headers={"ETag": labels_tag(labels)},
    )


def _plan_response(stored: StoredPlan, *, status: int) -> Response:
    return Response(
        stored.document_json,
        status_code=status,
        media_type="application/json",
        headers={"ETag": stored.etag, "Location": f"/v1/plans/{stored.id}"},
    )
