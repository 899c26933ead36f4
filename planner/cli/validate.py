"""`meshwright validate`: how far the cost model is from runs that were measured."""

from __future__ import annotations

from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.console import print_document, stdout, work_progress
from planner.cli.failures import NEGATIVE_ANSWER
from planner.cli.options import CalibrationOption, JsonOption

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from planner.schema.measured_run import MeasuredRun
    from planner.validation.comparison import Comparison
    from planner.validation.report import UnpricedRun


class KeyName(StrEnum):
    """What runs can be grouped by; here too, so that `--help` need not import the cost model."""

    FAMILY = "family"
    DEVICE = "device"
    STACK = "stack"
    PRECISION = "precision"
    MODEL = "model"
    CHECKPOINTING = "checkpointing"
    MEMORY_CLASS = "memory-class"
    TIER = "tier"


def validate(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Measured runs, one JSON object a line.")
    ],
    by: Annotated[
        list[KeyName] | None,
        typer.Option(
            "--by",
            metavar="KEY",
            help="Group by (may be repeated): family, device,"
            " stack, precision, model, checkpointing, memory-class or tier.",
        ),
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option("--rows", metavar="FILE", help="Write every run's comparison, one a line."),
    ] = None,
    calibration: CalibrationOption = None,
    json: JsonOption = False,
) -> None:
    """Compare the cost model with measured runs: errors by group, and what was not compared."""
    from planner.cli.views.validation import validation_view
    from planner.importers.measured_runs import read_measured_runs, run_count
    from planner.schema.calibration import CalibrationProfile
    from planner.validation.report import compared, validation_report

    profile = None if calibration is None else CalibrationProfile.read(calibration)
    with ExitStack() as held:
        kept = held.enter_context(rows.open("w", encoding="utf-8")) if rows else None
        listen = held.enter_context(work_progress("validate"))

        def heard() -> Iterator[MeasuredRun]:
            total = run_count(file)
            for done, run in enumerate(read_measured_runs(file)):
                listen(run.family_name, done, total)
                yield run

        report = validation_report(
            _kept(compared(heard(), profile), kept), by=by or [KeyName.FAMILY]
        )
    if json:
        print_document(report)
    else:
        stdout().print(validation_view(report))
    if not report.priced_count:
        raise typer.Exit(NEGATIVE_ANSWER)


def _kept(
    answers: Iterator[Comparison | UnpricedRun], file: TextIO | None
) -> Iterator[Comparison | UnpricedRun]:
    """Yield the answers, each written to the file as it passes."""
    if file is None:
        yield from answers
        return
    from planner.validation.row import run_comparison

    for answer in answers:
        file.write(run_comparison(answer).model_dump_json(exclude_none=True) + "\n")
        yield answer
