"""Simplicity: what the simplest plan within a tolerance costs, beside the fastest.

    python -m benchmarks.simplicity [--tolerance 0.02] [--seconds 60] [--write]

plans well-known models on well-known clusters; each plan names the fastest one too. With `--write`
the table goes into docs/trust.md.
"""

from __future__ import annotations

import argparse
import datetime as dt
from collections.abc import Iterator, Sequence
from statistics import mean, median

from benchmarks.page import DOCS, put
from benchmarks.safety import CASES, Case
from planner.answers.explain import describe_strategy
from planner.schema.job import Limits
from planner.schema.plan import Plan, Simplicity
from planner.version import planner_version

PAGE = DOCS / "trust.md"

Row = tuple[Case, Plan, Simplicity]


def main() -> None:
    """Print the table of all cases, and write it where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tolerance", type=float, default=Limits().simplicity_ratio)
    parser.add_argument("--seconds", type=float, default=60.0, help="of search for each plan")
    parser.add_argument("--write", action="store_true", help="into docs/trust.md")
    given = parser.parse_args()
    rows = []
    for case in CASES:
        plan = case.plan(
            chance=Limits().fits_probability,
            seconds=given.seconds,
            simplicity_ratio=given.tolerance,
        )
        if plan is None or plan.certificate.simplicity is None:
            print(f"{case.model} has no plan on {case.cluster}", flush=True)
            continue
        rows.append((case, plan, plan.certificate.simplicity))
        print(_row(*rows[-1]), flush=True)
    lines = list(_table(rows, tolerance=given.tolerance, seconds=given.seconds))
    print(lines[-1])
    if given.write:
        put("simplicity", lines, page=PAGE)


def _table(rows: Sequence[Row], *, tolerance: float, seconds: float) -> Iterator[str]:
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    yield (
        f"`python -m benchmarks.simplicity --tolerance {tolerance:g} --seconds {seconds:g}` on "
        f"{today}, version {planner_version()}:"
    )
    yield ""
    yield (
        "| model | cluster | batch x tokens | the fastest | its step | techniques "
        "| the simplest | longer by | techniques |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    yield from (_row(*row) for row in rows)
    yield ""
    yield _summary(rows, tolerance=tolerance)


def _row(case: Case, plan: Plan, said: Simplicity) -> str:
    same = plan.strategy == said.fastest
    cells = [
        case.model,
        case.cluster,
        f"{case.global_batch_size} x {case.sequence_length}",
        describe_strategy(said.fastest),
        f"{said.fastest_step_seconds:.4g} s{_how_sure(plan.certificate.status)}",
        str(len(said.fastest_techniques)),
        "the same" if same else describe_strategy(plan.strategy),
        f"{_cost_ratio(plan, said):.2%}",
        f"{len(said.techniques)}{_how_sure(said.status)}",
    ]
    return f"| {' | '.join(cells)} |"


def _how_sure(status: str) -> str:
    return "" if status == "optimal" else " (not proven)"


def _cost_ratio(plan: Plan, said: Simplicity) -> float:
    return plan.prediction.step_seconds.p50 / said.fastest_step_seconds - 1.0


def _summary(rows: Sequence[Row], *, tolerance: float) -> str:
    costs = [_cost_ratio(plan, said) for _, plan, said in rows]
    before = [len(said.fastest_techniques) for _, _, said in rows]
    after = [len(said.techniques) for _, _, said in rows]
    fewer = sum(one > other for one, other in zip(before, after, strict=True))
    proven = sum(plan.certificate.status == said.status == "optimal" for _, plan, said in rows)
    return (
        f"Of {len(rows)} fastest plans {fewer} have a simpler one within {tolerance:.0%}. Their "
        f"techniques go from {mean(before):.1f} to {mean(after):.1f} in the mean, and from "
        f"{max(before)} to {max(after)} at most; steps are longer by {median(costs):.2%} in the "
        f"median, {mean(costs):.2%} in the mean and {max(costs):.2%} at most. "
        f"{proven} are proven: the fastest, and that none within the tolerance is simpler."
    )


if __name__ == "__main__":
    main()
