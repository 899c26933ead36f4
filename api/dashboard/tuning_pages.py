"""Pages of tunings: the list, begin one from a plan, and its trials measured beside predicted."""
# ruff: noqa: FAST003 - `ThePlan` reads plan_id from the path

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Query, Response
from fastapi.responses import JSONResponse

from api.caller import Caller, Scope
from api.dashboard.answers import ThePlan
from api.dashboard.page_route import PageRoute
from api.dashboard.rendering import page, see
from api.dashboard.run_view import badge_of
from api.dashboard.tuning_form import TuningForm, tuning_request
from api.dashboard.tuning_view import TuningView, tuning_view
from api.deps import Plans, Reader, RunCaller, caller_with
from api.deps_agents import Runs, TuningId, Tunings
from api.services.runs import RunService
from api.tuning_schemas import TuningQuery, TuningState

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/tunings")
def show_tunings(
    caller: Reader,
    tunings: Tunings,
    state: TuningState | None = None,
    cursor: Annotated[str | None, Query(max_length=64)] = None,
) -> Response:
    """Show the tunings, the newest first."""
    found = tunings.list(caller, TuningQuery(state=state, cursor=cursor, limit=50))
    return page(
        "tunings.html",
        found=found,
        state=state,
        states=TuningState,
        cursor=cursor,
        badge_of=badge_of,
    )


@router.post("/plans/{plan_id}/tunings", dependencies=[Depends(caller_with(Scope.PLAN))])
def begin_tuning(
    caller: RunCaller, plan: ThePlan, tunings: Tunings, form: Annotated[TuningForm, Form()]
) -> Response:
    """Begin a tuning of what the plan was asked for, and show it."""
    tuning = tunings.create(caller, tuning_request(plan, form))
    return see(f"/tunings/{tuning.id}")


@router.get("/tunings/{tuning_id}")
def show_tuning(
    *, caller: Reader, tuning_id: TuningId, tunings: Tunings, runs: Runs, plans: Plans
) -> Response:
    """Show a tuning: each trial measured beside predicted, and what is known of all other plans."""
    view = tuning_view(tunings.get(caller, tuning_id))
    tuning = view.tuning
    shown = tuning.under_way.plan_id if tuning.under_way else tuning.best_plan_id
    return page(
        "tuning.html",
        view=view,
        step=_step(caller, view, runs),
        turns=_turns(view),
        warnings=plans.warnings(caller, shown) if shown else (),
    )


@router.get("/tunings/{tuning_id}/live.json")
def show_live(caller: Reader, tuning_id: TuningId, tunings: Tunings, runs: Runs) -> Response:
    """Return what changes on the page of a tuning while it goes on."""
    view = tuning_view(tunings.get(caller, tuning_id))
    content: dict[str, Any] = {
        "state": view.tuning.state.value,
        "step": _step(caller, view, runs),
        "is_over": view.is_over,
        "event_count": _turns(view),
        "beside": [],
        "figures": {"tuning-chart": view.figure},
    }
    return JSONResponse(content, headers={"Cache-Control": "no-store"})


@router.post("/tunings/{tuning_id}/cancel")
def cancel_tuning(caller: RunCaller, tuning_id: TuningId, tunings: Tunings) -> Response:
    """Have the tuning end, and show it."""
    tunings.cancel(caller, tuning_id)
    return see(f"/tunings/{tuning_id}")


@router.post("/tunings/{tuning_id}/resume", dependencies=[Depends(caller_with(Scope.PLAN))])
def resume_tuning(caller: RunCaller, tuning_id: TuningId, tunings: Tunings) -> Response:
    """Have the tuning go on, and show it."""
    tunings.resume(caller, tuning_id)
    return see(f"/tunings/{tuning_id}")


def _step(caller: Caller, view: TuningView, runs: RunService) -> int | None:
    """Return the last step of the trial under way."""
    trial = view.tuning.under_way
    return None if trial is None else runs.get(caller, trial.run_id).step


def _turns(view: TuningView) -> int:
    """Return a number that grows with each trial that begins or ends."""
    return 2 * view.tuning.trial_count + (view.tuning.under_way is not None)
