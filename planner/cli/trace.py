"""`meshwright trace`: any torch module to a model graph, in the executor's process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import JsonOption
from planner.cli.run import become_module


def trace(  # noqa: PLR0913  (what a command line takes)
    function: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="A function (of a module, or FILE.py:FUNCTION) that returns build_model and a "
            "tuple of example inputs.",
        ),
    ] = None,
    transformers: Annotated[
        Path | None,
        typer.Option(
            "--transformers",
            metavar="CONFIG",
            help="A config.json in place of a function: the class of transformers that it names.",
        ),
    ] = None,
    class_name: Annotated[
        str | None,
        typer.Option(
            "--class", metavar="NAME", help="The class, where it is not the one in architectures."
        ),
    ] = None,
    sequence_length: Annotated[
        int | None,
        typer.Option(
            "--sequence-length",
            min=1,
            metavar="TOKENS",
            help="Tokens of a traced sequence; default: all positions, up to 4096.",
        ),
    ] = None,
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
    if (function is None) is (transformers is None):
        raise typer.BadParameter("give either MODULE:FUNCTION or --transformers CONFIG")
    arguments = [] if function is None else [function]
    for option, value in (
        ("--transformers", transformers),
        ("--class", class_name),
        ("--sequence-length", sequence_length),
        ("--out", out),
        ("--blocks", blocks),
        ("--name", name),
    ):
        if value is not None:
            arguments += [option, str(value)]
    words = ["--json", *arguments] if as_json else arguments
    become_module("executor.trace_command", words, command="trace")
