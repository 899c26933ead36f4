"""`meshwright export`: a plan as the configuration of the software that is to run it."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.console import stdout
from planner.cli.inputs import read_plan
from planner.cli.options import JsonOption, PlanArgument
from planner.errors import InputError

if TYPE_CHECKING:
    from planner.exporters.export import Export


def export(
    plan: PlanArgument,
    to: Annotated[
        str, typer.Option("--to", metavar="TARGET", help="megatron-lm, torchtitan, slurm, ...")
    ],
    job_of: Annotated[
        str | None,
        typer.Option(
            "--job-of",
            metavar="TARGET",
            help="With torchrun, slurm, kubeflow or skypilot: start this framework's job.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write the files there.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write a plan for another framework or launcher, and say what it cannot express."""
    from planner.exporters import registry
    from planner.proof.verify import verify

    document = read_plan(plan)
    verify(document)
    made = registry.export(document, to, job_of=job_of)
    if out is not None:
        _write(made, out)
    if json:
        typer.echo(json_format.dumps(_fields(made), indent=2))
    elif out is None:
        _print(made)
    else:
        for file in made.files:
            stdout().print(f"written {out / file.name}", markup=False, soft_wrap=True)
    for loss in made.losses:
        typer.echo(f"not as planned: {loss}", err=True)


def _print(made: Export) -> None:
    """Print the files; where there are several, each under its name."""
    for file in made.files:
        if len(made.files) > 1:
            typer.echo(f"==> {file.name} <==")
        typer.echo(file.text, nl=False)


def _fields(made: Export) -> dict[str, object]:
    return {
        "target": made.target,
        "files": [{"name": file.name, "text": file.text} for file in made.files],
        "losses": list(made.losses),
        "strategy": made.strategy.model_dump(mode="json"),
    }


def _write(made: Export, directory: Path) -> None:
    """Write the files into `directory`, which is made.

    Raises:
        InputError: if it cannot be written to.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file in made.files:
            (directory / file.name).write_text(file.text, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}",
            field="--out",
            value=str(directory),
            remedy="name a directory that you may write to",
        ) from None
