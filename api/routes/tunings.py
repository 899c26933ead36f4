"""/v1/tunings."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from api.caller import Scope
from api.deps import IdempotencyKey, Reader, RunCaller, caller_with
from api.deps_agents import TuningId, Tunings
from api.problems import documented
from api.routes.documents import DocumentRoute
from api.tuning_schemas import FleetTuning, TuningPage, TuningQuery, TuningRequest

router = APIRouter(prefix="/v1/tunings", tags=["tunings"], route_class=DocumentRoute)

_PLANS_TOO = [Depends(caller_with(Scope.PLAN))]


@router.post("", status_code=201, responses=documented(413, 415), dependencies=_PLANS_TOO)
def create_tuning(
    caller: RunCaller,
    request: TuningRequest,
    tunings: Tunings,
    *,
    idempotency_key: IdempotencyKey = None,
) -> FleetTuning:
    """Begin a tuning: agents run the plan that is worth it most, again and again.

    Each trial is a run of its own, and what it measures is learnt from. It ends when no other plan
    is likely enough to be faster, or the budget is spent. It takes the scopes run and plan.
    """
    return tunings.create(caller, request, idempotency_key=idempotency_key)


@router.get("", responses=documented())
def list_tunings(
    caller: Reader, tunings: Tunings, query: Annotated[TuningQuery, Query()]
) -> TuningPage:
    """List tunings, the newest first."""
    return tunings.list(caller, query)


@router.get("/{tuning_id}", responses=documented(404))
def read_tuning(caller: Reader, tuning_id: TuningId, tunings: Tunings) -> FleetTuning:
    """Return a tuning as it is now, with all of its trials."""
    return tunings.get(caller, tuning_id)


@router.post("/{tuning_id}/cancel", responses=documented(404, 409))
def cancel_tuning(caller: RunCaller, tuning_id: TuningId, tunings: Tunings) -> FleetTuning:
    """Have a tuning end now; the trial under way is ended too, and is none of its trials."""
    return tunings.cancel(caller, tuning_id)


@router.post("/{tuning_id}/resume", responses=documented(404, 409), dependencies=_PLANS_TOO)
def resume_tuning(caller: RunCaller, tuning_id: TuningId, tunings: Tunings) -> FleetTuning:
    """Have a tuning that was cancelled, or failed, go on from its trials."""
    return tunings.resume(caller, tuning_id)
