"""Stored answers as the pages need them: read, and known to be plans."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from api.caller import Caller
from api.deps import PlanId, Plans, Reader
from api.services.analyses import AnalysisService
from api.services.plan_table import PlanTableService
from api.services.plans import PlanService
from planner.errors import InputError
from planner.schema.plan import Infeasible, Plan


def the_plan(caller: Reader, plan_id: PlanId, plans: Plans) -> Plan:
    """Return the plan that the path names.

    Raises:
        NotFoundError: if the caller's project has none.
        InputError: if it is an infeasible answer.
    """
    return stored_plan_of(plans, caller, plan_id)


def stored_plan_of(plans: PlanService, caller: Caller, plan_id: str) -> Plan:
    """Return the plan with that id.

    Raises:
        NotFoundError: if the caller's project has none.
        InputError: if it is an infeasible answer, of which there is nothing more to show.
    """
    answer = plans.get(caller, plan_id).answer
    if isinstance(answer, Infeasible):
        raise InputError(
            "is an infeasible answer: it has no strategy",
            field="plan",
            value=plan_id,
            remedy="open it to see what would help, or choose another plan",
        )
    return answer


async def _table(request: Request) -> PlanTableService:
    return PlanTableService(request.app.state.database)


async def _analyses(request: Request) -> AnalysisService:
    """Return the application's one service: it knows which searches it can end."""
    state = request.app.state
    known: AnalysisService | None = getattr(state, "analyses", None)
    if known is None:
        known = state.analyses = AnalysisService(state.database, state.pool, state.solves)
    return known


Analyses = Annotated[AnalysisService, Depends(_analyses)]
Table = Annotated[PlanTableService, Depends(_table)]
ThePlan = Annotated[Plan, Depends(the_plan)]
