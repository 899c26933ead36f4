"""Pages about one plan besides its overview: where ranks lie, exports, its pipeline as a trace."""
# ruff: noqa: FAST003 - `ThePlan` reads plan_id from the path

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from api.dashboard.answers import TheLabels, ThePlan
from api.dashboard.chrome_trace import chrome_trace
from api.dashboard.export_view import export_view, exported_file
from api.dashboard.page_route import PageRoute
from api.dashboard.placement_view import placement_view, tells_apart
from api.dashboard.rendering import page

router = APIRouter(route_class=PageRoute, include_in_schema=False)

ShortName = Annotated[str | None, Query(max_length=64)]
Target = Annotated[str, Path(max_length=64)]


@router.get("/plans/{plan_id}/placement")
def show_placement(
    plan: ThePlan,
    labels: TheLabels,
    by: ShortName = None,
    node: Annotated[int, Query(ge=0)] = 0,
) -> Response:
    """Show which rank lies where, and with whom it talks."""
    view = placement_view(plan, by=by, first_node=node)
    return page("placement.html", view=view, labels=labels, tells_apart=tells_apart)


@router.get("/plans/{plan_id}/trace.json")
def download_trace(plan: ThePlan) -> Response:
    """Return the simulated pipeline as a file for chrome://tracing or Perfetto."""
    headers = {"Content-Disposition": f'attachment; filename="{plan.id}-trace.json"'}
    content = json.dumps(chrome_trace(plan), separators=(",", ":"))
    return Response(content, media_type="application/json", headers=headers)


@router.get("/plans/{plan_id}/exports")
def show_exports(plan: ThePlan, labels: TheLabels) -> Response:
    """Show what the plan becomes for the first target."""
    return page("exports.html", view=export_view(plan, None), labels=labels)


@router.get("/plans/{plan_id}/exports/{target}")
def show_export(
    plan: ThePlan, labels: TheLabels, target: Target, job_of: ShortName = None
) -> Response:
    """Show what the plan becomes for one target, and what is lost."""
    return page("exports.html", view=export_view(plan, target, job_of), labels=labels)


@router.get("/plans/{plan_id}/exports/{target}/files/{name}")
def download_export(
    plan: ThePlan,
    target: Target,
    name: Annotated[str, Path(max_length=200)],
    job_of: ShortName = None,
) -> Response:
    """Return one exported file."""
    file = exported_file(plan, target, name, job_of)
    headers = {"Content-Disposition": f'attachment; filename="{file.name}"'}
    return Response(file.text, media_type="text/plain; charset=utf-8", headers=headers)
