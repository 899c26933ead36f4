"""`meshwright calibrate`: what measured runs teach of predicted steps and peaks of memory."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.console import print_document, stdout
from planner.cli.failures import NEGATIVE_ANSWER
from planner.cli.options import JsonOption, StackName
from planner.cli.plan import check_place, write_text
from planner.errors import InputError

if TYPE_CHECKING:
    from planner.calibration.row import Sorting
    from planner.schema.calibration import CalibrationProfile, CalibrationReport


def calibrate(
    file: Annotated[
        Path, typer.Argument(metavar="RUNS", help="Measured runs, one JSON object a line.")
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="PROFILE", help="Write the profile there (YAML).")
    ],
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="Use only runs on this device.")
    ] = None,
    stack: Annotated[
        StackName | None,
        typer.Option("--stack", metavar="NAME", help="Use only runs under this stack."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Learn from measured runs; exit 3, and write nothing, if that does not help."""
    from planner.cli.views.calibration import calibration_view

    check_place(out, option="--out")
    if out.suffix not in {".yaml", ".yml"}:
        raise InputError(
            "is not a YAML file",
            field="--out",
            value=str(out),
            remedy="name a file that ends in .yaml",
        )
    report = _report(file, out=out, device=device, stack=stack)
    if report.accepted:
        _write(out, report.profile)
    if json:
        print_document(report)
    else:
        stdout().print(calibration_view(report))
        kept = f"written to {out}" if report.accepted else "nothing written: shipped values stay"
        stdout().print(kept, markup=False)
    if not report.accepted:
        raise typer.Exit(NEGATIVE_ANSWER)


def _report(
    file: Path, *, out: Path, device: str | None, stack: StackName | None
) -> CalibrationReport:
    from planner.calibration.report import Origin, calibration_report
    from planner.calibration.row import sorted_rows
    from planner.importers.measured_runs import file_digest, read_measured_runs
    from planner.schema.job import Stack

    sorting = sorted_rows(
        read_measured_runs(file), device=device, stack=None if stack is None else Stack(stack)
    )
    _check_some(sorting, file)
    origin = Origin(
        name=out.stem[:200],
        date=datetime.now(UTC).date().isoformat(),
        source=file.name[:200],
        source_digest=file_digest(file),
    )
    return calibration_report(sorting, origin)


def _check_some(sorting: Sorting, file: Path) -> None:
    if sorting.rows or sorting.has_peaks:
        _check_few(sorting, file)
        return
    left_out = [*sorting.peaks_left_out.items(), *sorting.left_out.most_common(5)]
    reasons = ", ".join(f"{count} {why}" for why, count in left_out)
    raise InputError(
        f"no run can be fitted: {reasons}",
        field=str(file),
        value=f"{sorting.run_count} runs",
        remedy="give runs with a measured step or peak; `meshwright validate` says what they lack",
    )


def _check_few(sorting: Sorting, file: Path) -> None:
    from planner.schema.job import LEARNT_RUNS_MOST

    count = max(sum(map(len, sorting.rows.values())), len(sorting.peaked))
    if count > LEARNT_RUNS_MOST:
        raise InputError(
            f"has more runs than the {LEARNT_RUNS_MOST} that a calibration keeps",
            field=str(file),
            value=f"{count} runs",
            remedy="choose some with --device or --stack, or give a file of fewer",
        )


def _write(path: Path, profile: CalibrationProfile) -> None:
    from planner.schema.yaml_text import to_yaml

    write_text(path, to_yaml(profile.model_dump(mode="json")), option="--out")
