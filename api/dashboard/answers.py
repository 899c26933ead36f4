"""Stored answers as the pages need them: read, and known to be plans."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from api.deps import PlanId, Plans, Reader
from api.services.plan_table import PlanTableService
from planner.schema.plan import Plan


def the_plan(caller: Reader, plan_id: PlanId, plans: Plans) -> Plan:
    """Return the plan that the path names.

    Raises:
        NotFoundError: if the caller's project has none.
        InputError: if it is an infeasible answer.
    """
    return plans.planned(caller, plan_id)


async def _table(request: Request) -> PlanTableService:
    return PlanTableService(request.app.state.database)


Table = Annotated[PlanTableService, Depends(_table)]
ThePlan = Annotated[Plan, Depends(the_plan)]
