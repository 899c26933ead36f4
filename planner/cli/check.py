"""`meshwright check`: the contract test of a plan or strategy for a user's own CI."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.console import print_document, stdout
from planner.cli.failures import NEGATIVE_ANSWER
from planner.cli.given import read_given
from planner.cli.inputs import (
    read_plan,
    read_resolved_cluster,
    read_resolved_model,
)
from planner.cli.options import (
    BatchOption,
    CalibrationOption,
    ClusterArgument,
    FitsOption,
    JobOption,
    JsonOption,
    ModelArgument,
    OptimizerOption,
    PrecisionOption,
    SequenceOption,
    SettingsOption,
    StackOption,
    read_job,
)
from planner.errors import InputError


def check(  # noqa: PLR0913 - one parameter per option; tests freeze the surface
    plan_or_strategy: Annotated[
        Path, typer.Argument(metavar="PLAN_OR_STRATEGY", help="A plan, a strategy or your config.")
    ],
    model: ModelArgument,
    cluster: ClusterArgument,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", metavar="PLAN", help="The plan to compare the step with."),
    ] = None,
    max_slowdown: Annotated[
        float,
        typer.Option(
            "--max-slowdown",
            metavar="RATIO",
            min=0.0,
            help="How much slower than the baseline the step may be.",
        ),
    ] = 0.02,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write a JUnit report there.")
    ] = None,
    job: JobOption = None,
    global_batch_size: BatchOption = None,
    sequence_length: SequenceOption = None,
    precision: PrecisionOption = None,
    optimizer: OptimizerOption = None,
    stack: StackOption = None,
    calibration: CalibrationOption = None,
    settings: SettingsOption = None,
    fits_probability: FitsOption = None,
    json: JsonOption = False,
) -> None:
    """Check that a plan or strategy is legal, fits and is not slower; exit 3 if not."""
    fields = {
        "global_batch_size": global_batch_size,
        "sequence_length": sequence_length,
        "precision": precision,
        "optimizer": optimizer,
        "stack": stack,
    }
    if not math.isfinite(max_slowdown):
        raise InputError(
            "must be a finite ratio",
            field="--max-slowdown",
            value=max_slowdown,
            remedy="write 0.02 to allow two per cent",
        )
    named = read_resolved_model(model), read_resolved_cluster(cluster)
    given = read_given(plan_or_strategy, *named)
    own = None if job is not None else given.job
    wanted = read_job(
        job,
        fields=fields,
        limits={"fits_probability": fits_probability},
        fallback=own,
        calibration=calibration,
        settings=settings,
    )
    from planner.answers import check as checking
    from planner.cli.plan import write_text
    from planner.cli.views.check import check_view, junit_report
    from planner.requests.resolution import resolved_request

    request = resolved_request(*named, wanted)
    report = checking.check(
        request,
        given.strategy,
        source=str(plan_or_strategy),
        baseline=None if baseline is None else read_plan(baseline),
        max_slowdown_ratio=max_slowdown,
    )
    report = given.reported(report)
    if junit is not None:
        write_text(junit, junit_report(report), option="--junit")
    if json:
        print_document(report)
    else:
        stdout().print(check_view(report))
    if report.status == "failed":
        raise typer.Exit(NEGATIVE_ANSWER)
