"""/v1/runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent

from api.deps import IdempotencyKey, LastEventNumber, Reader, RunCaller
from api.deps_agents import RunId, RunMeasurements, Runs
from api.problems import documented
from api.routes.documents import DocumentRoute
from api.run_queries import RunLogQuery, RunMetricsQuery, RunQuery
from planner.schema.run import (
    Run,
    RunEvent,
    RunHistory,
    RunLog,
    RunMetrics,
    RunPage,
    RunRequest,
    RunResult,
)

router = APIRouter(prefix="/v1/runs", tags=["runs"], route_class=DocumentRoute)

_LINES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "JSON lines, one an attempt.",
        "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
    }
}


@router.post("", status_code=201, responses=documented(404, 413, 415))
def create_run(
    caller: RunCaller,
    request: RunRequest,
    runs: Runs,
    *,
    idempotency_key: IdempotencyKey = None,
) -> Run:
    """Queue a run of a plan; agents take it as soon as all that it needs are idle."""
    return runs.create(caller, request, idempotency_key=idempotency_key)


@router.get("", responses=documented())
def list_runs(caller: Reader, runs: Runs, query: Annotated[RunQuery, Query()]) -> RunPage:
    """List runs, the newest first."""
    return runs.list(caller, query)


@router.get("/{run_id}", responses=documented(404))
def read_run(caller: Reader, run_id: RunId, runs: Runs) -> Run:
    """Return a run as it is now."""
    return runs.get(caller, run_id)


@router.get("/{run_id}/history", responses=documented(404))
def read_history(caller: Reader, run_id: RunId, runs: Runs) -> RunHistory:
    """Return all that happened to a run, in order."""
    return runs.history(caller, run_id)


@router.get("/{run_id}/metrics", responses=documented(404))
def read_metrics(
    caller: Reader,
    run_id: RunId,
    measurements: RunMeasurements,
    query: Annotated[RunMetricsQuery, Query()],
) -> RunMetrics:
    """Return what was measured, beside what was predicted."""
    return measurements.metrics(caller, run_id, query)


@router.get("/{run_id}/logs", responses=documented(404))
def read_log(
    caller: Reader,
    run_id: RunId,
    measurements: RunMeasurements,
    query: Annotated[RunLogQuery, Query()],
) -> RunLog:
    """Return a piece of what a node wrote."""
    return measurements.log(caller, run_id, query)


@router.get("/{run_id}/result", responses=documented(404))
def read_result(caller: Reader, run_id: RunId, measurements: RunMeasurements) -> RunResult:
    """Return what node 0 of the newest attempt left behind."""
    return measurements.result(caller, run_id)


@router.get("/{run_id}/measured", response_class=Response, responses={**_LINES, **documented(404)})
def read_measured_rows(caller: Reader, run_id: RunId, measurements: RunMeasurements) -> Response:
    """Return the run's attempts as rows for `meshwright validate` and `calibrate`."""
    lines = measurements.measured_rows(caller, run_id)
    return Response(lines, media_type="application/x-ndjson")


def _run(caller: Reader, run_id: RunId, runs: Runs) -> Run:
    return runs.get(caller, run_id)


Found = Annotated[Run, Depends(_run)]


@router.get(
    "/{run_id}/events",  # noqa: FAST003 - the dependency takes it, so that 404 comes first
    response_class=EventSourceResponse,
    responses=documented(404),
)
async def follow_run(
    caller: Reader, run: Found, runs: Runs, after: LastEventNumber
) -> AsyncIterator[ServerSentEvent]:
    """Stream what happens until the run ends: `history` entries, and `progress` of the run."""
    async for news in runs.follow(caller, run.id, after=after):
        if isinstance(news, RunEvent):
            yield ServerSentEvent(
                raw_data=news.model_dump_json(), event="history", id=str(news.number)
            )
        else:
            yield ServerSentEvent(raw_data=news.model_dump_json(), event="progress")


@router.post("/{run_id}/cancel", responses=documented(404, 409))
def cancel_run(caller: RunCaller, run_id: RunId, runs: Runs) -> Run:
    """Have a run end: at once if nothing runs, else when its agents have stopped."""
    return runs.cancel(caller, run_id)
