"""/v1/plans/{plan_id}/exports."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from api.deps import PlanId, Plans, Reader
from api.plan_schemas import ExportTargetList
from api.problems import documented
from api.routes.documents import DocumentRoute
from api.services.exports import export_of, export_targets
from planner.schema.service import PlanExport

router = APIRouter(prefix="/v1/plans/{plan_id}/exports", tags=["plans"], route_class=DocumentRoute)

Target = Annotated[str, Path(pattern=r"^[a-z0-9.-]{1,64}$")]
JobOf = Annotated[
    str | None,
    Query(
        pattern=r"^[a-z0-9.-]{1,64}$",
        description="With a launcher: the target whose job it starts from its exported files.",
    ),
]


@router.get("", responses=documented(404))
def list_export_targets(caller: Reader, plan_id: PlanId, plans: Plans) -> ExportTargetList:
    """List what a plan can become, and why not where it cannot."""
    return export_targets(plans.planned(caller, plan_id))


@router.get("/{target}", responses=documented(404))
def read_export(
    caller: Reader, plan_id: PlanId, plans: Plans, *, target: Target, job_of: JobOf = None
) -> PlanExport:
    """Return the files that a plan becomes for a framework or a scheduler, and what they lose."""
    return export_of(plans.planned(caller, plan_id), target, job_of)
