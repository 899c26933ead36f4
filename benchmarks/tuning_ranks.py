"""`python -m benchmarks.tuning_ranks --from ROWS ... [--write]`: tune over what four ranks took.

    python -m benchmarks.regret --cluster here.json --out rows.json
        --models dense-wide dense-deep long-sequence mixture large-vocabulary memory-tight
        shared-heads few-experts
    python -m benchmarks.tuning_ranks --from rows.json --write

`benchmarks.regret` runs all strategies of a grid for small models, steps of all in turn, and keeps
every step: a table that answers what each strategy takes on this machine. Each way to choose of
`benchmarks.tuning` is held against it: the planner's first guess, at random, by prediction, and
`meshwright tune`, which calibrates by what it has measured so far. On two of the models nothing of
the planner was ever chosen or fitted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.page import put
from benchmarks.regret import job_of
from benchmarks.regret_models import Contest, contests, unseen_contests
from benchmarks.regret_rows import MeasuredModel, read_rows
from benchmarks.tuning import PAGE, Cell, Grid, orders_of, result_lines
from planner.errors import InputError
from planner.planning import estimates
from planner.requests.resolution import cluster_document, model_document, resolved_request
from planner.schema.measured_run import MeasuredRun
from planner.schema.trial import typical_seconds
from planner.validation.case import Case


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables, and write them where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning_ranks", description=__doc__)
    parser.add_argument("--from", dest="rows", nargs="+", type=Path, required=True, metavar="ROWS")
    parser.add_argument("--write", action="store_true", help="into docs/tuning.md")
    options = parser.parse_args(arguments)
    named = {contest.name: contest for contest in (*contests(), *unseen_contests())}
    models = read_rows(options.rows)
    found = [grid_of(named[model.name], model) for model in models]
    lines = list(result_lines(found, orders_of(found)))
    lines += [text for model in models for text in ("", f"{model.name}: {model.conditions}.")]
    lines += missing_lines(models)
    print("\n".join(lines))
    if options.write:
        put("ranks", lines, page=PAGE)
    return 0


def missing_lines(models: Sequence[MeasuredModel]) -> list[str]:
    """Return that models were not measured, where there are such."""
    known = {contest.name for contest in (*contests(), *unseen_contests())}
    missing = sorted(known - {model.name for model in models})
    return ["", f"Not measured: {', '.join(missing)}."] if missing else []


def grid_of(contest: Contest, measured: MeasuredModel) -> Grid:
    """Return the strategies of a model that ran, each with its typical step."""
    model = model_document(contest.graph.name, contest.graph)
    cluster = cluster_document(measured.cluster.name, measured.cluster)
    request = resolved_request(model, cluster, job_of(contest))
    ran = [
        (row.strategy, seconds)
        for row, seconds in zip(measured.rows, typical_seconds(measured.rows), strict=True)
        if seconds is not None
    ]
    answers = estimates(model, cluster, request.job.resolved, [strategy for strategy, _ in ran])
    cells = tuple(
        Cell(
            case=Case(
                run=MeasuredRun(),
                graph=contest.graph,
                cluster=measured.cluster,
                hardware=request.hardware,
                job=request.job.resolved,
                strategy=answer.strategy,
                workload=request.workload,
                assumptions=(),
                breaches=(),
            ),
            seconds=seconds,
        )
        for (_, seconds), answer in zip(ran, answers, strict=True)
        if not isinstance(answer, InputError)
    )
    return Grid(name=contest.name, cells=cells)


if __name__ == "__main__":
    sys.exit(main())
