"""/healthz, /readyz and /metrics."""

from __future__ import annotations

from fastapi import APIRouter, Response

from api.deps import HealthChecks, MetricsOfApp
from api.metrics import CONTENT_TYPE
from api.problems import documented
from api.schemas import Health

router = APIRouter(tags=["health"])


@router.get("/healthz", responses=documented())
async def is_alive(health: HealthChecks) -> Health:
    """Say that the process answers."""
    return health.alive()


@router.get("/readyz", responses=documented())
async def is_ready(health: HealthChecks) -> Health:
    """Say that the database is reachable and at the newest schema."""
    return await health.ready()


@router.get("/metrics", response_class=Response, responses=documented())
def read_service_metrics(metrics: MetricsOfApp) -> Response:
    """Return the metrics in Prometheus' text format."""
    return Response(metrics.text(), media_type=CONTENT_TYPE)
