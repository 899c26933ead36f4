"""`meshwright explain`: why a plan is as it is, and why not another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.console import print_document, stdout, work_progress
from planner.cli.dask import dask_pool
from planner.cli.degrees import degree_interval
from planner.cli.inputs import read_plan, read_strategy
from planner.cli.options import (
    DaskOption,
    JsonOption,
    PlanArgument,
    SolverSecondsOption,
    read_job,
)
from planner.errors import InputError

if TYPE_CHECKING:
    from planner.requests.inquiry import Inquiry
    from planner.requests.planned import Planned
    from planner.schema.plan import Plan
    from planner.schema.reasons import Objection

DEFAULT_AXES = "tensor_parallel_degree,pipeline_parallel_degree"


def explain(  # noqa: PLR0913 - one parameter per option; tests freeze the surface
    plan: PlanArgument,
    why_not: Annotated[
        list[str] | None,
        typer.Option(
            "--why-not",
            metavar="X",
            help="A strategy file, or degrees: tensor_parallel_degree=4,zero_stage=3. Repeatable.",
        ),
    ] = None,
    heatmap: Annotated[
        bool, typer.Option("--heatmap", help="Solve every pair of two degrees.")
    ] = False,
    axes: Annotated[
        str, typer.Option("--axes", metavar="A,B", help="The heatmap's two degrees.")
    ] = DEFAULT_AXES,
    solver_seconds: SolverSecondsOption = None,
    dask: DaskOption = None,
    json: JsonOption = False,
) -> None:
    """Say what binds, what more memory is worth, who came second, and why not X."""
    document = read_plan(plan)
    from planner.answers.reasons import planned_of, reasons
    from planner.cli.views.reasons import reasons_view
    from planner.requests.inquiry import Inquiry

    chosen = _axes(axes) if heatmap else None
    planned = planned_of(document)
    seconds = _seconds(document, solver_seconds)
    with dask_pool(dask) as pool, work_progress("explaining") as listen:
        inquiry = Inquiry.within(seconds, listen=listen, pool=pool)
        objections = [_objection(planned, asked, inquiry) for asked in why_not or ()]
        found = reasons(document, inquiry=inquiry, objections=objections, axes=chosen)
    if json:
        print_document(found)
    else:
        stdout().print(reasons_view(found))


def _seconds(plan: Plan, wanted: float | None) -> float:
    """Return how long to search: as long as the plan's job allows, or as is wanted."""
    if wanted is None:
        return plan.job.resolved.limits.solver_seconds
    return read_job(None, fields={}, limits={"solver_seconds": wanted}).limits.solver_seconds


def _axes(text: str) -> tuple[str, str]:
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2:
        raise InputError(
            "must name two degrees", field="--axes", value=text, remedy=f"write {DEFAULT_AXES}"
        )
    return names[0], names[1]


def _objection(planned: Planned, asked: str, inquiry: Inquiry) -> Objection:
    from planner.answers.objection import why_not_degrees, why_not_strategy

    if "=" in asked:
        return why_not_degrees(planned, _fixed(asked), asked=asked, inquiry=inquiry)
    return why_not_strategy(planned, read_strategy(Path(asked)), asked=asked)


def _fixed(text: str) -> dict[str, Any]:
    """Return what `tensor_parallel_degree=4,zero_stage=3` fixes."""
    fixed: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if not name or not value:
            raise InputError(
                "is neither a strategy file nor a list of degrees",
                field="--why-not",
                value=text,
                remedy="write tensor_parallel_degree=4,zero_stage=3, or the path of a strategy",
            )
        fixed[name] = _value(name, value)
    return fixed


def _value(name: str, text: str) -> Any:
    if name.endswith("_degree") or name == "micro_batch_size":
        return degree_interval(text, field=f"--why-not {name}")
    if name == "zero_stage" and text.isdigit():
        return int(text)
    if name == "offload":
        return [] if text == "none" else text.split("+")
    return text
