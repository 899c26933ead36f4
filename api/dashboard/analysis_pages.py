"""Pages about a plan that need further searches: why it is so, and what else could be had."""
# ruff: noqa: FAST003 - `ThePlan` reads plan_id from the path

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Response
from fastapi.responses import JSONResponse
from pydantic import BeforeValidator, ConfigDict, Field

from api.dashboard.answers import TheLabels, ThePlan
from api.dashboard.page_route import PageRoute
from api.dashboard.rendering import page, see
from api.dashboard.tradeoff_view import tradeoff_view
from api.dashboard.why_view import why_view
from api.deps import Analyses, PlanCaller, Reader
from api.plan_schemas import AnalysisKind, AnalysisRequest, FixedDegree
from api.schemas import WirePart

_PAGES = {"reasons": "why", "why-not": "why"}  # the others are trade-offs

router = APIRouter(route_class=PageRoute, include_in_schema=False)

FormDegree = Annotated[FixedDegree, BeforeValidator(lambda text: text or None)]


class Asked(WirePart):
    """A question as it was stored: its kind, and the degrees that a "why not?" fixes."""

    model_config = ConfigDict(extra="ignore")

    kind: AnalysisKind
    asked: Annotated[str, Field(max_length=200, pattern=r"^[a-z0-9_=,]*$")] = ""


class Question(AnalysisRequest):
    """What a form asks to be worked out: what is left empty is not fixed."""

    model_config = ConfigDict(extra="ignore")

    tensor_parallel_degree: FormDegree = None
    pipeline_parallel_degree: FormDegree = None
    context_parallel_degree: FormDegree = None
    expert_parallel_degree: FormDegree = None


@router.get("/plans/{plan_id}/why")
def show_reasons(caller: Reader, plan: ThePlan, labels: TheLabels, analyses: Analyses) -> Response:
    """Show why the plan is as it is."""
    view = why_view(plan, analyses.of_plan(caller, plan.id))
    return page("why.html", view=view, labels=labels)


@router.get("/plans/{plan_id}/trade-offs")
def show_tradeoffs(
    caller: Reader, plan: ThePlan, labels: TheLabels, analyses: Analyses
) -> Response:
    """Show what other degrees would cost, and the Pareto front."""
    view = tradeoff_view(plan, analyses.of_plan(caller, plan.id))
    return page("tradeoffs.html", view=view, labels=labels)


@router.post("/plans/{plan_id}/analyses")
def ask(
    caller: PlanCaller,
    plan: ThePlan,
    analyses: Analyses,
    question: Annotated[Question, Form()],
) -> Response:
    """Have a question worked out, and show the page that it belongs to."""
    analyses.start(caller, plan.id, question.kind, asked=question.asked())
    where = f"/plans/{plan.id}/{_PAGES.get(question.kind, 'trade-offs')}#{question.kind}"
    return see(where)


@router.post("/plans/{plan_id}/analyses/cancel")
def cancel(
    caller: PlanCaller,
    plan: ThePlan,
    analyses: Analyses,
    given: Annotated[Asked, Form()],
) -> Response:
    """End the search for an answer, and show the page with the question unasked."""
    analyses.cancel(caller, plan.id, given.kind, asked=given.asked)
    where = f"/plans/{plan.id}/{_PAGES.get(given.kind, 'trade-offs')}#{given.kind}"
    return see(where)


@router.get("/plans/{plan_id}/analyses")
def show_states(caller: Reader, plan: ThePlan, analyses: Analyses) -> Response:
    """Return how far each question is, for the script that watches."""
    states = [
        {
            "key": f"{each.kind} {each.asked}".strip(),
            "state": each.state,
            "phase": each.phase,
            "done": each.done,
            "total": each.total,
        }
        for each in analyses.of_plan(caller, plan.id)
    ]
    return JSONResponse(states, headers={"Cache-Control": "no-store"})
