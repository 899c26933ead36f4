"""`meshwright tune`: plan, measure a few candidates here, learn, and say how much better any is."""

from __future__ import annotations

import fcntl
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from planner.cli.console import print_document, search_progress, stderr, stdout
from planner.cli.failures import NEGATIVE_ANSWER
from planner.cli.inputs import read_resolved_cluster, read_resolved_model
from planner.cli.options import (
    BatchOption,
    CalibrationOption,
    ClusterArgument,
    FitsOption,
    FrameworkOption,
    JobOption,
    JsonOption,
    ModelArgument,
    OptimizerOption,
    PrecisionOption,
    SequenceOption,
    SettingsOption,
    SolverSecondsOption,
    StackOption,
    read_job,
)
from planner.cli.plan import check_place, write_text
from planner.cli.run import fleet_options
from planner.errors import InputError
from planner.extras import check_extras
from planner.units import counted

if TYPE_CHECKING:
    from rich.console import Console

    from planner.cli.trial import Launch
    from planner.schema.tuning import Tuning

RUNS, STEPS, TRIAL_MINUTES = 10, 5, 60.0
_SECONDS_PER_MINUTE = 60.0
_TRIALS_SUFFIX = ".trials"


def tune(  # noqa: PLR0913 - one parameter per option; tests freeze the surface
    model: ModelArgument,
    cluster: ClusterArgument,
    script: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- SCRIPT ARGS...", help="A training script, after `--`."),
    ] = None,
    runs: Annotated[
        int, typer.Option("--runs", min=1, max=100, metavar="N", help="Most plans to try.")
    ] = RUNS,
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", metavar="M", help="Start no trial after this time."),
    ] = None,
    steps: Annotated[
        int,
        typer.Option(
            "--steps", min=1, max=100_000, metavar="K", help="Timed steps of each, after warm-up."
        ),
    ] = STEPS,
    trial_minutes: Annotated[
        float | None,
        typer.Option(
            "--trial-minutes",
            metavar="M",
            help=f"End a trial that takes longer; {TRIAL_MINUTES:g} unless given.",
        ),
    ] = None,
    device: Annotated[
        Literal["cpu", "cuda"] | None,
        typer.Option("--device", help="Kind of devices to run on; default: the plan's."),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            "--template",
            metavar="COMMAND",
            help="Another framework's job: {config} is what a plan is exported to.",
        ),
    ] = None,
    step_pattern: Annotated[
        str | None,
        typer.Option(
            "--step-pattern", metavar="REGEX", help="With --template: how a step's time is printed."
        ),
    ] = None,
    peak_pattern: Annotated[
        str | None,
        typer.Option(
            "--peak-pattern", metavar="REGEX", help="With --template: how peak memory is printed."
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="URL", help="Have a service's agents run the trials."),
    ] = None,
    agent_command: Annotated[
        str | None,
        typer.Option("--command", help="With --on: which command of the agents; default train."),
    ] = None,
    argument: Annotated[
        list[str] | None,
        typer.Option("--argument", metavar="NAME=VALUE", help="With --on: passed to it; repeat."),
    ] = None,
    detach: Annotated[
        bool,
        typer.Option("--detach", help="With --on: print the tuning's name, and do not wait."),
    ] = False,
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE", help="Keep all trials there; the same command goes on from it."
        ),
    ] = Path("tuning.json"),
    plan_out: Annotated[
        Path | None, typer.Option("--plan-out", metavar="FILE", help="Write the best plan there.")
    ] = None,
    job: JobOption = None,
    global_batch_size: BatchOption = None,
    sequence_length: SequenceOption = None,
    precision: PrecisionOption = None,
    optimizer: OptimizerOption = None,
    stack: StackOption = None,
    framework: FrameworkOption = None,
    calibration: CalibrationOption = None,
    settings: SettingsOption = None,
    fits_probability: FitsOption = None,
    solver_seconds: SolverSecondsOption = None,
    json: JsonOption = False,
) -> None:
    """Try the most promising plans on this machine, and learn from each, to find the best here."""
    fields = {
        "global_batch_size": global_batch_size,
        "sequence_length": sequence_length,
        "precision": precision,
        "optimizer": optimizer,
        "stack": stack,
        "framework": framework,
    }
    limits = {"fits_probability": fits_probability, "solver_seconds": solver_seconds}
    here = {"script": script, "--device": device}
    patterns = {"--step-pattern": step_pattern, "--peak-pattern": peak_pattern}
    there = {"--command": agent_command, "--argument": argument, "--detach": detach}
    if on is None:
        _refuse(there, "is for trials on a fleet, which --on names")
    else:
        local = {**here, "--template": template, "--trial-minutes": trial_minutes}
        _refuse(local, "is for trials on this machine, without --on")
        _check_new(out)
    if template is None:
        _refuse(patterns, "says what a job of --template prints")
        check_extras("meshwright tune", "executor.agent" if on else "executor.launcher")
    else:
        _refuse(here, "is not for the job of --template")
    _check_places(out, plan_out, script or ())
    wanted = read_job(job, fields=fields, limits=limits, calibration=calibration, settings=settings)
    from planner.cli.template import read_template
    from planner.cli.trial import Launch
    from planner.requests.resolution import resolved_request
    from planner.schema.tuning import Tuning
    from planner.version import planner_version

    request = resolved_request(read_resolved_model(model), read_resolved_cluster(cluster), wanted)
    asked = Tuning.from_fields(
        {
            "model": request.model,
            "cluster": request.cluster,
            "job": request.job,
            "script": tuple(script or ()),
            "template": template,
            "step_pattern": step_pattern,
            "peak_pattern": peak_pattern,
            "device": device,
            "budget": {"runs": runs, "minutes": minutes, "steps": steps},
            "planner_version": planner_version(),
        },
        source="the options",
    )
    launch = Launch(
        folder=out.with_suffix(_TRIALS_SUFFIX),
        script=asked.script,
        step_count=steps,
        seconds_most=_trial_seconds(trial_minutes),
        template=None
        if template is None
        else read_template(
            template,
            framework=request.job.resolved.framework,
            step_pattern=step_pattern,
            peak_pattern=peak_pattern,
        ),
        device=device,
    )
    console = stderr() if json else stdout()
    with _sigterm_as_interrupt():
        if on is None:
            with _held(launch.folder, out):
                tuning = _tuned(_resumed(asked, out, console), launch, out=out, console=console)
        else:
            words = fleet_options(on, agent_command, argument, detach=detach)
            said = _asked_of_fleet(asked, words)
            if detach:
                typer.echo(said, nl=False)
                return
            tuning = Tuning.model_validate_json(said)
            _keep(out, tuning)
    _show(tuning, console=console, plan_out=plan_out, as_json=json)
    if tuning.best_index is None:
        raise typer.Exit(NEGATIVE_ANSWER)


def _check_places(out: Path, plan_out: Path | None, script: Sequence[str]) -> None:
    """Raise before the first trial where its results could not be kept, or its script not run."""
    check_place(out, option="--out")
    folder = out.with_suffix(_TRIALS_SUFFIX)
    if folder == out or (folder.exists() and not folder.is_dir()):
        raise InputError(
            f"leaves no place for the folder of its trials, {folder}",
            field="--out",
            value=str(out),
            remedy="name another file, such as tuning.json",
        )
    if plan_out is not None and plan_out.resolve() == out.resolve():
        raise InputError(
            "is where all trials are kept",
            field="--plan-out",
            value=str(plan_out),
            remedy="name another file than --out",
        )
    if plan_out is not None:
        check_place(plan_out, option="--plan-out")
    if script and not Path(script[0]).is_file():
        raise InputError(
            "is not a file",
            field="script",
            value=script[0],
            remedy="give the path of a Python script after --",
        )


def _trial_seconds(minutes: float | None) -> float:
    """Return how long a trial may take."""
    if minutes is None:
        return TRIAL_MINUTES * _SECONDS_PER_MINUTE
    if not 0.0 < minutes < math.inf:
        raise InputError(
            "is not a time limit",
            field="--trial-minutes",
            value=minutes,
            remedy="give more than 0 minutes",
        )
    return minutes * _SECONDS_PER_MINUTE


def _check_new(out: Path) -> None:
    if out.exists():
        raise InputError(
            "exists, and a tuning on a fleet cannot go on from it",
            field="--out",
            value=str(out),
            remedy="name another file: the service keeps the tuning, and resumes it",
        )


def _asked_of_fleet(asked: Tuning, options: Sequence[str]) -> str:
    """Return what the executor prints of a tuning that a service's agents do.

    Raises:
        Exit: if it did not come to its end, of which the executor told.
    """
    done = subprocess.run(
        [sys.executable, "-m", "executor.agent", "tune", *options],
        input=asked.to_json(),
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        raise typer.Exit(done.returncode)
    return done.stdout


def _refuse(options: Mapping[str, object], reason: str) -> None:
    for name, value in options.items():
        if value:
            raise InputError(reason, field=name, remedy="leave one of the two out")


def _resumed(asked: Tuning, out: Path, console: Console) -> Tuning:
    """Return the tuning with the trials that `out` has of the same, none where it is not there.

    Raises:
        InputError: if the file holds another tuning.
    """
    from planner.schema.tuning import Tuning
    from planner.tuning.continuation import continued

    if not out.exists():
        return asked
    found = continued(Tuning.read(out), asked, path=out)
    if found.trials:
        has = counted(len(found.trials), "trial")
        console.print(f"going on from {out}, which has {has}", markup=False)
    return found


def _tuned(tuning: Tuning, launch: Launch, *, out: Path, console: Console) -> Tuning:
    """Return the tuning at its end; after each trial all of it is on file.

    Raises:
        InputError: if nothing but failures came of the first trials.
    """
    from planner.cli.trial import trial_of
    from planner.cli.views.tuning import trial_line
    from planner.tuning.decision import Ended, decide
    from planner.tuning.outcome import FAILURES_MOST, all_failed

    failed = 0
    while True:
        with search_progress("choosing what to try") as listen:
            following = decide(tuning, on_progress=listen)
        if isinstance(following, Ended):
            tuning = tuning.model_copy(update={"certificate": following.certificate})
            _keep(out, tuning)
            return tuning
        number = len(tuning.trials) + 1
        trial = trial_of(following, launch, number=number)
        tuning = tuning.model_copy(update={"trials": (*tuning.trials, trial)})
        _keep(out, tuning)
        console.print(trial_line(tuning, number), markup=False, soft_wrap=True)
        failed += trial.outcome == "failed"
        if failed == FAILURES_MOST and tuning.best_index is None:
            raise all_failed(trial, remedy="give the same command again")


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Have SIGTERM end this command as Ctrl-C does, so that no trial outlives it."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _held(folder: Path, out: Path) -> Iterator[None]:
    """Hold the folder of trials, so that no other command tries the same and overwrites them.

    Raises:
        InputError: if another command is at it.
    """
    folder.mkdir(exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                "is being tuned into by another command",
                field="--out",
                value=str(out),
                remedy="wait for its end, or name another file",
            ) from None
        yield
    finally:
        os.close(handle)


def _keep(out: Path, tuning: Tuning) -> None:
    """Write the tuning whole or not at all: the command may be ended at any time."""
    draft = out.with_name(f"{out.name}.draft")
    write_text(draft, tuning.to_json(), option="--out")
    os.replace(draft, out)  # noqa: PTH105


def _show(tuning: Tuning, *, console: Console, plan_out: Path | None, as_json: bool) -> None:
    from planner.cli.views.tuning import end_lines
    from planner.tuning.decision import best_plan

    for line in end_lines(tuning):
        console.print(line, markup=False, soft_wrap=True)
    found = None if plan_out is None else best_plan(tuning)
    if plan_out is not None and found is not None:
        write_text(plan_out, found.to_json(), option="--plan-out")
        console.print(f"written to {plan_out}", markup=False)
    if as_json:
        print_document(tuning)
