"""/v1/fleet."""

from __future__ import annotations

from fastapi import APIRouter

from api.deps import Reader
from api.deps_agents import FleetHistory
from api.fleet_schemas import Fleet, FleetGroupLine
from api.problems import documented
from api.routes.documents import DocumentRoute

router = APIRouter(prefix="/v1/fleet", tags=["runs"], route_class=DocumentRoute)


@router.get("", responses=documented())
def read_fleet(caller: Reader, history: FleetHistory) -> Fleet:
    """Return how the newest 50 runs met their predictions, and which clusters drift from them."""
    lines = [
        FleetGroupLine.model_validate(group, from_attributes=True)
        for group in history.groups(caller)
    ]
    return Fleet(groups=tuple(lines))
