"""`meshwright compare`: what differs between plans."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.console import print_document, stdout
from planner.cli.given import read_given
from planner.cli.inputs import read_plan
from planner.cli.options import JsonOption

if TYPE_CHECKING:
    from planner.schema.plan import Estimate, Plan


def compare(
    plans: Annotated[
        list[Path],
        typer.Argument(
            metavar="PLAN PLAN...",
            help="Plan files; the first is the base, the others may be configs.",
        ),
    ],
    json: JsonOption = False,
) -> None:
    """Show only what differs, with deltas to the first plan."""
    from planner.answers import comparison
    from planner.cli.views.comparison import comparison_view
    from planner.proof.verify import verify
    from planner.schema.job import Limits
    from planner.schema.plan import Plan

    base = read_plan(plans[0])
    compared = [base, *(_beside(base, path) for path in plans[1:])]
    found = comparison.compare(compared)
    for plan in compared:
        if isinstance(plan, Plan):
            verify(plan)
    if json:
        print_document(found)
    else:
        works = {plan.job.resolved.model_copy(update={"limits": Limits()}) for plan in compared}
        stdout().print(comparison_view(found, one_work=len(works) == 1))


def _beside(base: Plan, path: Path) -> Plan | Estimate:
    """Return the plan in the file at `path`, or the price of its strategy on the base's job.

    Raises:
        InputError: if it cannot be read, or cannot be run on the base's cluster.
    """
    from planner import planning
    from planner.schema.document import read_fields

    if path.suffix.lower() == ".json" and "status" in read_fields(path):
        return read_plan(path)
    given = read_given(path, base.model, base.cluster)
    with given.words():
        return planning.estimate(base.model, base.cluster, base.job.resolved, given.strategy)
