"""`meshwright compare`: what differs between plans."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.console import print_document, stdout
from planner.cli.inputs import read_plan
from planner.cli.options import JsonOption


def compare(
    plans: Annotated[
        list[Path],
        typer.Argument(metavar="PLAN PLAN...", help="Plan files; the first is the base."),
    ],
    json: JsonOption = False,
) -> None:
    """Show only what differs, with deltas to the first plan."""
    from planner import comparison
    from planner.cli.views.comparison import comparison_view

    found = comparison.compare([read_plan(path) for path in plans])
    if json:
        print_document(found)
    else:
        stdout().print(comparison_view(found))
