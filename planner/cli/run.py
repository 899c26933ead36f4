"""`meshwright run`: apply a plan here, through torch's own launcher.

The planner does not import the executor: it becomes the executor's process, so that signals and
exit codes pass through.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Never

import typer

from planner.cli.inputs import read_plan
from planner.cli.options import PlanArgument
from planner.errors import InputError
from planner.extras import check_extras


def run(  # noqa: PLR0913 - one parameter per option
    plan: PlanArgument,
    script: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- SCRIPT ARGS...", help="A training script, after `--`."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, metavar="N", help="Stop after N steps.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write the run report there.")
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(
            "--runs", metavar="FILE", help="Add the run to FILE, for validate and calibrate."
        ),
    ] = None,
    device: Annotated[
        Literal["cpu", "cuda"] | None,
        typer.Option("--device", help="Kind of devices to run on; default: the plan's."),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(
            "--profile", metavar="FOLDER", help="Trace three steps, and say what they are made of."
        ),
    ] = None,
    timeout_seconds: Annotated[
        int | None,
        typer.Option(
            "--timeout-seconds",
            min=1,
            metavar="N",
            help="How long ranks wait in a step for one that hangs; default 600.",
        ),
    ] = None,
    start_timeout_seconds: Annotated[
        int | None,
        typer.Option(
            "--start-timeout-seconds",
            min=1,
            metavar="N",
            help="The same until the first step has ended; default: as --timeout-seconds.",
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="URL",
            help="Have a service's agents run it; PLAN may be a name there.",
        ),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option("--command", help="With --on: which command of the agents; default train."),
    ] = None,
    argument: Annotated[
        list[str] | None,
        typer.Option("--argument", metavar="NAME=VALUE", help="With --on: passed to it; repeat."),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="With --on: print the run's name, and do not wait.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print the run report on stdout; ranks print on stderr."),
    ] = False,
) -> None:
    """Train with a plan, here or on a fleet: the reference model, or your own script."""
    options = {
        "--device": device, "--profile": profile, "--runs": runs,
        "--timeout-seconds": timeout_seconds, "--start-timeout-seconds": start_timeout_seconds,
    }  # fmt: skip
    here = {
        "-- SCRIPT": script, "--steps": steps, "--report": report, **options, "--json": as_json,
    }  # fmt: skip
    there = {"--command": command, "--argument": argument, "--detach": detach}
    if on is not None:
        _refuse(here, "is for runs on this machine", remedy="leave it out, or leave out --on")
        words = fleet_options(on, command, argument, detach=detach)
        become_module("executor.agent", ["submit", str(plan), *words], command="run")
    _refuse(there, "is for runs on a fleet", remedy="leave it out, or say which with --on URL")
    read_plan(plan)
    arguments = launcher_arguments(plan, script, steps, report)
    given = {name: value for name, value in options.items() if value is not None}
    words = [word for name, value in given.items() for word in (name, str(value))]
    flags = ["--json"] if as_json else []
    become_module("executor.launcher", [*flags, *words, *arguments], command="run")


def _refuse(options: Mapping[str, object], reason: str, *, remedy: str) -> None:
    for name, value in options.items():
        if value:
            raise InputError(reason, field=name, remedy=remedy)


def fleet_options(
    server: str, command: str | None, arguments: Sequence[str] | None, *, detach: bool
) -> list[str]:
    """Return the options with which the executor asks a service for something."""
    words = ["--on", server]
    if command is not None:
        words += ["--command", command]
    for argument in arguments or ():
        words.append(f"--argument={argument}")
    return [*words, "--detach"] if detach else words


def launcher_arguments(
    plan: Path, script: Sequence[str] | None, steps: int | None, report: Path | None
) -> list[str]:
    """Return the command line of the executor's launcher."""
    arguments = [str(plan)]
    if report is not None:
        arguments += ["--report", str(report)]
    if steps is not None:
        arguments += ["--steps", str(steps)]
    if script:
        arguments += ["--", *script]
    return arguments


def become_module(module: str, arguments: Sequence[str], *, command: str) -> Never:
    """Replace this process, `meshwright command`, by `python -m module arguments`.

    Raises:
        MissingExtraError: if the module's extra is not installed.
    """
    check_extras(f"meshwright {command}", module)
    sys.stdout.flush()
    sys.stderr.flush()
    # A folder called api that happens to lie in the current one is not the service.
    flags = ["-P"] if module == "api" else []
    os.execv(sys.executable, [sys.executable, *flags, "-m", module, *arguments])  # noqa: S606
