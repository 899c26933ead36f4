"""The compare page: two to six plans side by side, or plans beside a config that was pasted."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Query, Response

from api.caller import Caller
from api.dashboard.comparison_view import Shown, compare_url, comparison_view
from api.dashboard.page_route import PageRoute
from api.dashboard.pasted_config import (
    TEXT_LENGTH_LIMIT,
    PastedConfig,
    packed,
    pasted_config,
    unpacked,
)
from api.dashboard.rendering import page, see
from api.deps import Plans, Reader
from api.schemas import PlanQuery
from api.services.plans import COMPARED_PLANS_LIMIT, PlanService, planned_answer
from api.services.records import StoredPlan
from planner.errors import InputError

_CANDIDATES = 12

router = APIRouter(route_class=PageRoute, include_in_schema=False)

PlanIds = Annotated[tuple[str, ...], Query()]


@router.get("/compare")
def show_comparison(
    *,
    caller: Reader,
    plans: Plans,
    plan: PlanIds = (),
    config: Annotated[str | None, Query(max_length=TEXT_LENGTH_LIMIT)] = None,
    show: Annotated[Shown, Query()] = "differences",
) -> Response:
    """Show plans side by side, the first as the baseline; of one alone, what to compare it with."""
    stored = _chosen(caller, plans, plan)
    chosen = [planned_answer(each) for each in stored]
    names = {each.id: each.labels.name for each in stored if each.labels.name}
    pasted = pasted_config(unpacked(config), chosen[0]) if config and chosen else None
    priced = None if pasted is None else pasted.estimate
    if len(chosen) + (priced is not None) < 2:
        return _choice(caller, plans, stored, pasted)
    view = comparison_view(chosen, names=names, shown=show, config=priced, link=config)
    return page("compare.html", view=view, pasted=pasted or PastedConfig())


@router.post("/compare/config")
def take_config(
    plan: Annotated[list[str], Form()],
    config: Annotated[str, Form(max_length=TEXT_LENGTH_LIMIT)] = "",
) -> Response:
    """Send on to the page whose address holds the pasted config."""
    return see(compare_url(plan, config=packed(config)))


def _chosen(caller: Caller, plans: PlanService, ids: tuple[str, ...]) -> list[StoredPlan]:
    if len(ids) > COMPARED_PLANS_LIMIT:
        raise InputError(
            f"a comparison takes 2 to {COMPARED_PLANS_LIMIT} plans",
            field="plan",
            value=f"{len(ids)} selected",
            remedy="go back to the plans and select others",
        )
    return [plans.get(caller, plan_id) for plan_id in dict.fromkeys(ids)]


def _choice(
    caller: Caller, plans: PlanService, chosen: list[StoredPlan], pasted: PastedConfig | None
) -> Response:
    """Return the page that asks what to compare with; plans of the same model come first."""
    first = chosen[0] if chosen else None
    model = None if first is None else first.answer.model.resolved.name
    query = PlanQuery(model=model, status="planned", limit=_CANDIDATES)
    found = plans.list(caller, query).items
    return page(
        "compare_choice.html",
        status=422 if pasted is not None else 200,
        plan=None if first is None else first.answer,
        name=None if first is None else first.labels.name,
        candidates=[item for item in found if all(item.id != each.id for each in chosen)],
        pasted=pasted or PastedConfig(),
    )
