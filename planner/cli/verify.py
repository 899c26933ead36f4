"""`meshwright verify`: a plan recomputed without the solver."""

from __future__ import annotations

import json as json_format

import typer

from planner.cli.inputs import read_plan
from planner.cli.options import JsonOption, PlanArgument


def verify(plan: PlanArgument, json: JsonOption = False) -> None:
    """Recompute a plan's prediction from the cost model and compare; exit 3 if it does not hold."""
    document = read_plan(plan)
    from planner import verify as verification

    verification.verify(document)
    if json:
        typer.echo(json_format.dumps({"status": "verified", "id": document.id}))
    else:
        typer.echo(
            f"{document.id}: legal, fits, and its prediction recomputed without the solver;"
            " the lower bound is the search's own"
        )
