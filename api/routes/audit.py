"""/v1/audit-events."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.deps import Administrator, AuditLog
from api.problems import documented
from api.routes.documents import DocumentRoute
from api.schemas import AuditPage, AuditQuery

router = APIRouter(prefix="/v1/audit-events", tags=["audit"], route_class=DocumentRoute)


@router.get("", responses=documented())
def list_audit_events(
    caller: Administrator, audit: AuditLog, query: Annotated[AuditQuery, Query()]
) -> AuditPage:
    """List who did what in the project, the newest first."""
    return audit.list(caller, query)
