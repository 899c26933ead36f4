"""Pages of runs and agents: lists, start a run from a plan, watch it, read its logs, cancel it."""
# ruff: noqa: FAST003 - `ThePlan` reads plan_id from the path

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import JSONResponse

from api.caller import Caller, Scope
from api.dashboard.answers import TheLabels, ThePlan
from api.dashboard.fleet_view import fleet_view
from api.dashboard.page_route import PageRoute
from api.dashboard.rendering import page, see
from api.dashboard.run_form import RunForm, run_request, spelled
from api.dashboard.run_view import RunView, badge_of, memory_of, run_view
from api.deps import Administrator, Plans, Reader, RunCaller
from api.deps_agents import AgentId, Agents, FleetHistory, RunId, RunMeasurements, Runs
from api.errors import NotFoundError
from api.run_queries import AgentQuery, RunLogQuery, RunMetricsQuery, RunQuery
from api.services.agents import AgentService
from api.services.fleet_history import LEAST_RUNS
from api.services.plans import PlanService
from api.services.run_measurements import RunMeasurementService
from api.services.runs import RunService
from planner.errors import InputError
from planner.schema.agent import EnrolmentToken, EnrolmentTokenRequest
from planner.schema.lifecycle import RunState
from planner.schema.run import Run
from planner.schema.tuning import TRIALS_MOST, TuningBudget

_ROWS_LIMIT = 10_000
_AGENTS_LIMIT = 50

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/runs")
def show_runs(
    *,
    caller: Reader,
    runs: Runs,
    plans: Plans,
    state: RunState | None = None,
    cursor: Annotated[str | None, Query(max_length=64)] = None,
) -> Response:
    """Show the runs, the newest first."""
    found = runs.list(caller, RunQuery(state=state, cursor=cursor, limit=50))
    return page(
        "runs.html",
        found=found,
        titles=_titles(caller, plans, found.items),
        state=state,
        states=RunState,
        cursor=cursor,
        badge_of=badge_of,
    )


@router.get("/fleet")
def show_fleet(caller: Reader, plans: Plans, history: FleetHistory) -> Response:
    """Show how runs met their predictions over time, by cluster and stack."""
    view = fleet_view(history.groups(caller))
    ids = {run.plan_id for group in view.groups for run in group.group.runs}
    titles = plans.titles(caller, ids)
    return page("fleet.html", view=view, titles=titles, least_runs=LEAST_RUNS)


@router.get("/agents")
def show_agents(
    caller: Reader,
    request: Request,
    agents: Agents,
    cursor: Annotated[str | None, Query(max_length=128)] = None,
) -> Response:
    """Show the agents and what they offer."""
    return _agents_page(caller, agents, request, cursor=cursor)


@router.post("/agents/tokens")
def make_token(
    caller: Administrator,
    request: Request,
    agents: Agents,
    note: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Show a new one-time token, this once."""
    token = agents.make_enrolment_token(caller, spelled(EnrolmentTokenRequest, {"note": note}))
    response = _agents_page(caller, agents, request, token=token)
    response.headers["Cache-Control"] = "no-store"
    return response


@router.post("/agents/{agent_id}/revoke")
def revoke_agent(caller: Administrator, agents: Agents, agent_id: AgentId) -> Response:
    """Make an agent's token void, and show the others."""
    agents.revoke(caller, agent_id)
    return see("/agents")


@router.get("/plans/{plan_id}/runs")
def show_plan_runs(
    *,
    caller: Reader,
    plan: ThePlan,
    labels: TheLabels,
    plans: Plans,
    runs: Runs,
    agents: Agents,
) -> Response:
    """Show the runs of a plan, and the form that starts one."""
    offered = agents.of_project(caller)
    commands = sorted({name for agent in offered for name in agent.report.commands})
    accepted = {
        name: rules for agent in offered for name, rules in agent.report.arguments.items() if rules
    }
    found = runs.list(caller, RunQuery(plan_id=plan.id, limit=50)).items
    return page(
        "plan_runs.html",
        plan=plan,
        labels=labels,
        runs=found,
        titles=_titles(caller, plans, found),
        agents=offered,
        commands=commands,
        accepted=accepted,
        trials_most=TRIALS_MOST,
        trials_usual=TuningBudget().runs,
        badge_of=badge_of,
    )


@router.post("/plans/{plan_id}/runs")
def start_run(
    caller: RunCaller, plan: ThePlan, runs: Runs, form: Annotated[RunForm, Form()]
) -> Response:
    """Queue a run of the plan and show it."""
    run = runs.create(caller, run_request(plan.id, form))
    return see(f"/runs/{run.id}")


@router.get("/runs/{run_id}")
def show_run(
    *, caller: Reader, run_id: RunId, plans: Plans, runs: Runs, measurements: RunMeasurements
) -> Response:
    """Show a run: its state, measured beside predicted, its history and logs."""
    view = _view(caller, run_id, runs, measurements)
    logs = [_log_head(caller, view, measurements, lease.node_rank) for lease in view.run.leases]
    return page(
        "run.html",
        view=view,
        titles=_titles(caller, plans, [view.run]),
        warnings=plans.warnings(caller, view.run.plan_id),
        logs=[log for log in logs if log is not None],
        badge_of=badge_of,
    )


@router.get("/runs/{run_id}/live.json")
def show_live(caller: Reader, run_id: RunId, runs: Runs, measurements: RunMeasurements) -> Response:
    """Return what changes on the page of a run while it goes on."""
    view = _view(caller, run_id, runs, measurements)
    content = {
        "state": view.run.state.value,
        "badge": view.badge,
        "step": view.run.step,
        "left": view.left,
        "waiting_for": view.run.waiting_for,
        "is_over": view.is_over,
        "event_count": len(view.history),
        "beside": [
            {"predicted": row.predicted, "measured": row.measured, "ratio": row.ratio}
            for row in view.beside
        ],
        "figures": {"step-chart": view.step_figure, "loss-chart": view.loss_figure},
    }
    return JSONResponse(content, headers={"Cache-Control": "no-store"})


@router.get("/runs/{run_id}/log.txt")
def show_log(
    caller: Reader,
    run_id: RunId,
    measurements: RunMeasurements,
    query: Annotated[RunLogQuery, Query()],
) -> Response:
    """Return a piece of a node's log as text; the header says where the next piece starts."""
    piece = measurements.log(caller, run_id, query)
    headers = {"X-End-Offset": str(piece.end_offset), "Cache-Control": "no-store"}
    return Response(piece.text, media_type="text/plain; charset=utf-8", headers=headers)


@router.post("/runs/{run_id}/cancel")
def cancel_run(caller: RunCaller, run_id: RunId, runs: Runs) -> Response:
    """Have the run end, and show it."""
    runs.cancel(caller, run_id)
    return see(f"/runs/{run_id}")


def _agents_page(
    caller: Caller,
    agents: AgentService,
    request: Request,
    *,
    cursor: str | None = None,
    token: EnrolmentToken | None = None,
) -> Response:
    return page(
        "agents.html",
        found=agents.list(caller, AgentQuery(cursor=cursor, limit=_AGENTS_LIMIT)),
        cursor=cursor,
        may_revoke=Scope.ADMIN in caller.scopes,
        memory_of=memory_of,
        token=token,
        server=str(request.base_url).rstrip("/"),
    )


def _titles(caller: Caller, plans: PlanService, runs: Sequence[Run]) -> dict[str, str]:
    """Return what people call the plans of the runs."""
    return plans.titles(caller, {each for run in runs for each in (run.plan_id, run.first_plan_id)})


def _view(
    caller: Caller, run_id: str, runs: RunService, measurements: RunMeasurementService
) -> RunView:
    metrics = measurements.metrics(caller, run_id, RunMetricsQuery(limit=_ROWS_LIMIT))
    return run_view(runs.get(caller, run_id), runs.history(caller, run_id).items, metrics)


def _log_head(
    caller: Caller, view: RunView, measurements: RunMeasurementService, node: int
) -> object:
    try:
        return measurements.log(caller, view.run.id, RunLogQuery(node=node))
    except (NotFoundError, InputError):
        return None
