"""Pages about a plan that need further searches: why it is so, and what else could be had."""
# ruff: noqa: FAST003 - `ThePlan` reads plan_id from the path

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Form, Response
from fastapi.responses import JSONResponse, RedirectResponse
from pydantic import BeforeValidator, ConfigDict, Field

from api.dashboard.answers import Analyses, ThePlan
from api.dashboard.page_route import PageRoute
from api.dashboard.rendering import page
from api.dashboard.tradeoff_view import tradeoff_view
from api.dashboard.why_view import why_view
from api.deps import PlanCaller, Reader
from api.schemas import WirePart
from planner.errors import InputError

_SEE_OTHER = 303
_PAGES = {"reasons": "why", "why-not": "why", "heatmap": "trade-offs", "frontier": "trade-offs"}

router = APIRouter(route_class=PageRoute, include_in_schema=False)

FormDegree = Annotated[
    Annotated[int, Field(ge=1, le=2**20)] | None, BeforeValidator(lambda text: text or None)
]


Kind = Literal["reasons", "why-not", "heatmap", "frontier"]


class Asked(WirePart):
    """A question as it was stored: its kind, and the degrees that a "why not?" fixes."""

    model_config = ConfigDict(extra="ignore")

    kind: Kind
    asked: Annotated[str, Field(max_length=200)] = ""


class Question(WirePart):
    """What a form asks to be worked out; degrees are for `why-not`."""

    model_config = ConfigDict(extra="ignore")

    kind: Kind
    tensor_parallel_degree: FormDegree = None
    pipeline_parallel_degree: FormDegree = None
    context_parallel_degree: FormDegree = None
    expert_parallel_degree: FormDegree = None

    def asked(self) -> str:
        """Return the degrees that are fixed as `name=degree,...`.

        Raises:
            InputError: if a "why not?" fixes none.
        """
        if self.kind != "why-not":
            return ""
        degrees = self.model_dump(exclude={"kind"}, exclude_none=True)
        if not degrees:
            raise InputError(
                "names no degree", field="why not", remedy="fill in at least one degree"
            )
        return ",".join(f"{name}={degree}" for name, degree in degrees.items())


@router.get("/plans/{plan_id}/why")
def show_reasons(caller: Reader, plan: ThePlan, analyses: Analyses) -> Response:
    """Show why the plan is as it is."""
    return page("why.html", view=why_view(plan, analyses.of_plan(caller, plan.id)))


@router.get("/plans/{plan_id}/trade-offs")
def show_tradeoffs(caller: Reader, plan: ThePlan, analyses: Analyses) -> Response:
    """Show what other degrees would cost, and the Pareto front."""
    return page("tradeoffs.html", view=tradeoff_view(plan, analyses.of_plan(caller, plan.id)))


@router.post("/plans/{plan_id}/analyses")
def ask(
    caller: PlanCaller,
    plan: ThePlan,
    analyses: Analyses,
    question: Annotated[Question, Form()],
) -> Response:
    """Have a question worked out, and show the page that it belongs to."""
    analyses.start(caller, plan.id, question.kind, asked=question.asked())
    where = f"/plans/{plan.id}/{_PAGES[question.kind]}#{question.kind}"
    return RedirectResponse(where, status_code=_SEE_OTHER)


@router.post("/plans/{plan_id}/analyses/cancel")
def cancel(
    caller: PlanCaller,
    plan: ThePlan,
    analyses: Analyses,
    given: Annotated[Asked, Form()],
) -> Response:
    """End the search for an answer, and show the page with the question unasked."""
    analyses.cancel(caller, plan.id, given.kind, asked=given.asked)
    where = f"/plans/{plan.id}/{_PAGES[given.kind]}#{given.kind}"
    return RedirectResponse(where, status_code=_SEE_OTHER)


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
