"""The dashboard's pages: each asks one service and renders what it answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Form, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from api.caller import Scope
from api.dashboard import (
    access_pages,
    analysis_pages,
    compare_pages,
    plan_pages,
    run_pages,
    tuning_pages,
)
from api.dashboard.answers import Tables
from api.dashboard.comparison_view import fastest_url
from api.dashboard.infeasible_view import InfeasibleView, infeasible_view
from api.dashboard.label_form import LabelForm, label_form, read_labels
from api.dashboard.page_route import PageRoute
from api.dashboard.plan_list import ListQuery
from api.dashboard.plan_view import PlanView, plan_view
from api.dashboard.rendering import page, problem_page, see
from api.dashboard.submission import (
    Submission,
    read_submission,
    refused,
    typed,
    understanding,
    values_of,
)
from api.deps import (
    Catalogue,
    OperationId,
    Operations,
    PlanCaller,
    PlanId,
    Plans,
    Reader,
    caller_with,
)
from api.errors import (
    AlreadyFinishedError,
    BusyError,
    ChangedMeanwhileError,
    FailedSolveError,
    problem_of,
)
from api.schemas import PlanLabelsChange
from api.services.plans import Answered
from api.services.records import StoredPlan, labels_tag
from planner.errors import InputError
from planner.schema.document import DOCUMENT_BYTES_LIMIT
from planner.schema.job import Framework, Objective, Optimizer, Precision, Stack
from planner.schema.plan import Infeasible
from planner.schema.service import OperationState, Problem

_WAIT_SECONDS = 0.5
_REMEMBERED_VIEWS = 32
_NONE: Mapping[str, str] = {}

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/")
def show_plans(caller: Reader, tables: Tables, asked: Annotated[ListQuery, Query()]) -> Response:
    """Show the plans: by default all, the newest first."""
    return page("plans.html", table=tables.shown(caller, asked))


@router.get("/docs")
def show_docs() -> Response:
    """Show the REST interface, operation by operation."""
    return page("docs.html")


@router.get("/plans/new")
def show_form(
    *,
    caller: Reader,
    request: Request,
    plans: Plans,
    catalogue: Catalogue,
    origin: Annotated[str | None, Query(alias="from", max_length=64)] = None,
) -> Response:
    """Show the form: empty, filled from the query, or as it was for another answer."""
    values = typed(request.query_params)
    if origin is not None:
        values = values_of(plans.get(caller, origin).answer)
    return _form(Submission(values=values), catalogue)


@router.post("/plans/new")
async def submit_form(
    caller: PlanCaller, request: Request, plans: Plans, catalogue: Catalogue
) -> Response:
    """Plan what the form says, or show it again with what is wrong."""
    form = await request.form(max_part_size=DOCUMENT_BYTES_LIMIT)
    submission = await run_in_threadpool(read_submission, typed(form))
    if submission.request is None:
        return _form(submission, catalogue, status=422)
    try:
        outcome = await plans.submit(caller, submission.request, wait_seconds=_WAIT_SECONDS)
    except (InputError, FailedSolveError, BusyError) as error:
        problem = problem_of(error)
        again = refused(submission.values, problem)
        return _form(again, catalogue, status=problem.status, problem=problem)
    if isinstance(outcome, Answered):
        return see(f"/plans/{outcome.plan.id}")
    return see(f"/operations/{outcome.id}")


@router.post("/plans/new/understanding", dependencies=[Depends(caller_with(Scope.READ))])
async def show_understanding(request: Request) -> Response:
    """Return what the form says so far, for the script that shows it before it is sent."""
    form = await request.form(max_part_size=DOCUMENT_BYTES_LIMIT)
    found = await run_in_threadpool(understanding, typed(form))
    return JSONResponse(asdict(found), headers={"Cache-Control": "no-store"})


@router.get("/plans/{plan_id}")
def show_plan(caller: Reader, plan_id: PlanId, plans: Plans) -> Response:
    """Show a plan, or why there is none and what would help."""
    return _plan_page(plans.get(caller, plan_id))


@router.post("/plans/{plan_id}/labels")
def label_plan(
    caller: PlanCaller, plan_id: PlanId, plans: Plans, form: Annotated[LabelForm, Form()]
) -> Response:
    """Change the name, notes and tags of a plan, or show it again with what is wrong in them."""
    change = read_labels(form)
    if not isinstance(change, PlanLabelsChange):
        return _plan_page(plans.get(caller, plan_id), form=form, complaints=change)
    try:
        plans.label(caller, plan_id, change, if_match=form.seen)
    except ChangedMeanwhileError as error:
        stored = plans.get(caller, plan_id)
        again = form.model_copy(update={"seen": labels_tag(stored.labels)})
        return _plan_page(stored, form=again, complaints={"seen": str(error)})
    return see(f"/plans/{plan_id}")


def _plan_page(
    stored: StoredPlan, *, form: LabelForm | None = None, complaints: Mapping[str, str] = _NONE
) -> Response:
    view = _view(stored)
    status = HTTPStatus.UNPROCESSABLE_ENTITY if complaints else HTTPStatus.OK
    labelled = {
        "labels": stored.labels,
        "owner": stored.owner,
        "form": form or label_form(stored.labels),
        "complaints": complaints,
    }
    if isinstance(view, PlanView):
        link = fastest_url(view.plan)
        return page("plan.html", status=status, view=view, fastest_url=link, **labelled)
    return page("infeasible.html", status=status, view=view, **labelled)


@router.post("/plans/{plan_id}/delete")
def delete_plan(caller: PlanCaller, plan_id: PlanId, plans: Plans) -> Response:
    """Remove a plan or an infeasible answer, and show the others."""
    plans.delete(caller, plan_id)
    return see("/")


@router.get("/plans/{plan_id}/document.json")
def download_plan(caller: Reader, plan_id: PlanId, plans: Plans) -> Response:
    """Return the document as a file, indented for readers and version control."""
    stored = plans.get(caller, plan_id)
    content = json.dumps(json.loads(stored.document_json), indent=2) + "\n"
    headers = {"Content-Disposition": f'attachment; filename="{stored.id}.json"'}
    return Response(content, media_type="application/json", headers=headers)


@router.get("/operations/{operation_id}")
def show_progress(caller: Reader, operation_id: OperationId, operations: Operations) -> Response:
    """Show how far a solve is; once it has ended, its plan or what went wrong."""
    operation = operations.get(caller, operation_id)
    if operation.plan_id is not None:
        return see(f"/plans/{operation.plan_id}")
    if operation.problem is not None:
        return problem_page(operation.problem)
    if operation.state is OperationState.CANCELLED:
        return page("cancelled.html")
    return page("solving.html", operation=operation)


@router.post("/operations/{operation_id}/cancel")
def cancel(caller: PlanCaller, operation_id: OperationId, operations: Operations) -> Response:
    """End a solve; one that has just ended is shown as it is."""
    try:
        operations.cancel(caller, operation_id)
    except AlreadyFinishedError:
        return see(f"/operations/{operation_id}")
    return see(f"/operations/{operation_id}")


@lru_cache(maxsize=_REMEMBERED_VIEWS)
def _view(stored: StoredPlan) -> PlanView | InfeasibleView:
    """Return what the page shows; a plan does not change, and its timeline is simulated."""
    answer = stored.answer
    return infeasible_view(answer) if isinstance(answer, Infeasible) else plan_view(answer)


def _form(
    submission: Submission,
    catalogue: Catalogue,
    *,
    status: int = 200,
    problem: Problem | None = None,
) -> Response:
    return page(
        "new.html",
        status=status,
        values=submission.values,
        complaints=submission.complaints,
        problem=problem,
        models=[item.name for item in catalogue.models().items],
        devices=catalogue.devices().items,
        choices={
            "precision": Precision,
            "optimizer": Optimizer,
            "stack": Stack,
            "framework": Framework,
            "objective": Objective,
        },
    )


for pages in (plan_pages, compare_pages, analysis_pages, run_pages, tuning_pages, access_pages):
    router.include_router(pages.router)
