"""The commands in one application, and the one place where exceptions become exit codes.

Command functions import what they need when they run: `meshwright --help` must not wait for numpy,
pydantic or a solver.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from planner.cli import (
    agent,
    calibrate,
    catalogue,
    check,
    compare,
    compare_frameworks,
    discover,
    estimate,
    explain,
    export,
    frontier,
    keys,
    plan,
    profile,
    run,
    service,
    size,
    trace,
    tune,
    validate,
    verify,
)
from planner.cli.demo.command import demo
from planner.cli.failures import INTERRUPTED, report, report_interrupt

app = typer.Typer(
    name="meshwright",
    help="Split a training job over GPUs: plan it, prove it, compare it, run it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 error, 2 usage, 3 infeasible, does not fit or check failed.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"meshwright {version('meshwright')}")
        raise typer.Exit


@app.callback()
def _application(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


app.command("plan")(plan.plan)
app.command("estimate")(estimate.estimate)
app.command("explain")(explain.explain)
app.command("frontier")(frontier.frontier)
app.command("size")(size.size)
app.command("check")(check.check)
app.command("compare")(compare.compare)
app.command("compare-frameworks")(compare_frameworks.compare_frameworks)
app.command("export")(export.export)
app.command("verify")(verify.verify)
app.command("validate")(validate.validate)
app.command("calibrate")(calibrate.calibrate)
app.command("run", context_settings={"allow_interspersed_args": True})(run.run)
app.command("tune", context_settings={"allow_interspersed_args": True})(tune.tune)
app.command("profile")(profile.profile)
app.command("discover")(discover.discover)
app.command("trace")(trace.trace)
app.command("serve")(service.serve)
app.add_typer(agent.agent, name="agent")
app.add_typer(service.database, name="db")
app.add_typer(keys.keys, name="keys")
app.command("audit")(keys.audit)
app.command("models")(catalogue.models)
app.command("devices")(catalogue.devices)
app.command("demo")(demo)


def invoke(arguments: Sequence[str]) -> int:
    """Run the command line `arguments` and return its exit code; nothing escapes."""
    as_json = "--json" in _own(arguments)
    try:
        result = app(args=list(arguments), prog_name="meshwright", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away (`meshwright models | head`): say nothing more, also not at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return report_interrupt()
    except Exception as error:  # noqa: BLE001 - the outermost frame: report it in one line
        return report(error, as_json=as_json)
    code = result if isinstance(result, int) else 0
    return report_interrupt() if code == INTERRUPTED else code


def _own(arguments: Sequence[str]) -> Sequence[str]:
    """Return the arguments before `--`; those after it belong to a training script."""
    own = list(arguments)
    return own[: own.index("--")] if "--" in own else own


def main() -> None:
    """Run the command line of this process and exit."""
    sys.exit(invoke(sys.argv[1:]))
