"""`meshwright verify`: a plan recomputed without the solver."""

from __future__ import annotations

import json as json_format
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.inputs import read_plan
from planner.cli.options import JsonOption, PlanArgument

if TYPE_CHECKING:
    from planner.proof.bound_record import BoundCheck


def verify(
    plan: PlanArgument,
    certificate: Annotated[
        Path | None,
        typer.Option(
            "--certificate",
            metavar="FILE",
            help="Evaluate the lower bound again by what `plan --certificate-out` wrote.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Recompute a plan's prediction from the cost model and compare; exit 3 if it does not hold."""
    document = read_plan(plan)
    from planner.proof import verify as verification

    verification.verify(document)
    checked = None
    if certificate is not None:
        from planner.proof.bound_record import check_record
        from planner.schema.bound_record import BoundRecord

        checked = check_record(document, BoundRecord.read(certificate))
    if json:
        answer = {"status": "verified", "id": document.id}
        found = {} if checked is None else {"certificate": asdict(checked)}
        typer.echo(json_format.dumps({**answer, **found}))
        return
    typer.echo(
        f"{document.id}: legal, fits, and its prediction recomputed without the solver"
        + ("; the lower bound is the search's own" if checked is None else "")
    )
    if checked is not None:
        for line in _lines(checked):
            typer.echo(line)


def _lines(checked: BoundCheck) -> Iterator[str]:
    """Yield by what the lower bound holds."""
    total = f"of {checked.configurations_total:,} configurations"
    yield f"lower bound of the closed form {checked.lower_bound_seconds:.6g} s, {total}:"
    yield f"  {checked.infeasible:,} have no plan within memory, by re-evaluated duality"
    yield f"  {checked.bounded:,} have none below the bound, by re-evaluated duality"
    for engine, count in checked.trusted.items():
        yield f"  {count:,} taken on trust of the search's {engine}"
