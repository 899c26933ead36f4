"""Stored answers as the pages need them: read, and known to be plans."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from api.dashboard.plan_tables import PlanTables
from api.deps import PlanId, Plans, Reader
from api.services.plans import planned_answer
from api.services.records import StoredPlan
from planner.schema.plan import Plan
from planner.schema.service import PlanLabels


def the_stored(caller: Reader, plan_id: PlanId, plans: Plans) -> StoredPlan:
    """Return what is stored of the plan that the path names.

    Raises:
        NotFoundError: if the caller's project has none.
    """
    return plans.get(caller, plan_id)


TheStored = Annotated[StoredPlan, Depends(the_stored)]


def the_plan(stored: TheStored) -> Plan:
    """Return the plan that the path names.

    Raises:
        NoStrategyError: if it is an infeasible answer, of which there is nothing more to show.
    """
    return planned_answer(stored)


def the_labels(stored: TheStored) -> PlanLabels:
    """Return what people call the plan that the path names, and wrote beside it."""
    return stored.labels


async def _tables(request: Request) -> PlanTables:
    tables: PlanTables = request.app.state.plan_tables
    return tables


Tables = Annotated[PlanTables, Depends(_tables)]
ThePlan = Annotated[Plan, Depends(the_plan)]
TheLabels = Annotated[PlanLabels, Depends(the_labels)]
