"""`meshwright compare-frameworks`: what a plan's step would be under each framework."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli.console import print_document, stdout
from planner.cli.dask import dask_pool
from planner.cli.inputs import read_plan
from planner.cli.options import DaskOption, JsonOption, PlanArgument


def compare_frameworks(
    plan: PlanArgument,
    solver_seconds: Annotated[
        float,
        typer.Option(
            "--solver-seconds", metavar="SECONDS", min=0.1, help="Time for all searches together."
        ),
    ] = 20.0,
    dask: DaskOption = None,
    json: JsonOption = False,
) -> None:
    """Price what planning for each framework costs, beside a plan."""
    from planner.answers.framework_prices import framework_prices
    from planner.cli.views.framework_prices import framework_prices_view
    from planner.proof.verify import verify
    from planner.requests.inquiry import Inquiry

    document = read_plan(plan)
    verify(document)
    with dask_pool(dask) as pool:
        found = framework_prices(document, inquiry=Inquiry.within(solver_seconds, pool=pool))
    if json:
        print_document(found)
    else:
        stdout().print(framework_prices_view(found))
