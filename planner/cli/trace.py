"""`meshwright trace`: any torch module to a model graph, in the executor's process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import JsonOption
from planner.cli.run import become_module


def trace(
    function: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="A function (of a module, or FILE.py:FUNCTION) that returns build_model and a "
            "tuple of example inputs.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the model graph there.")
    ] = None,
    blocks: Annotated[
        str | None,
        typer.Option(
            "--blocks",
            metavar="PATH",
            help="The module's list of blocks; default: the list with most parameters.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Default: the module's class.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Trace a torch module into a model graph that `plan` and `estimate` take."""
    arguments = [function]
    for option, value in (("--out", out), ("--blocks", blocks), ("--name", name)):
        if value is not None:
            arguments += [option, str(value)]
    words = ["--json", *arguments] if as_json else arguments
    become_module("executor.trace_command", words, command="trace")
