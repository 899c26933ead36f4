"""`meshwright demo`: the whole story with a progress bar."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.console import stderr, stdout
from planner.cli.options import JsonOption
from planner.extras import check_extras

if TYPE_CHECKING:
    from rich.console import Console

    from planner.cli.demo.machine import Machine
    from planner.cli.demo.service import Service
    from planner.cli.demo.steps import Steps
    from planner.schema.plan import Plan

STEP_COUNT = 7
RANK_COUNT = 4
PROFILE_SECONDS = 10.0
TRAINING_STEP_COUNT = 20
# The story must end within a minute even where a proof takes longer; the gap is then shown.
SEARCH_LIMITS = {"solver_seconds": 12.0}
GPU_REQUESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "plan Llama-3-8B on 8 H100",
        {
            "model": "llama-3-8b",
            "cluster": "8xh100-sxm5-80gb",
            "job": {"global_batch_size": 512, "sequence_length": 8192, "limits": SEARCH_LIMITS},
        },
    ),
    (
        "plan Qwen3-30B-A3B on 64 H100",
        {
            "model": "qwen3-30b-a3b",
            "cluster": "8x8xh100-sxm5-80gb",
            "job": {"global_batch_size": 1024, "sequence_length": 4096, "limits": SEARCH_LIMITS},
        },
    ),
)
CPU_MODEL = "tiny-llama-cpu"
CPU_JOB = {
    "global_batch_size": 16,
    "sequence_length": 128,
    "precision": "fp32",
    "limits": SEARCH_LIMITS,
}


def demo(
    keep_serving: Annotated[
        bool | None,
        typer.Option(
            "--keep-serving/--no-keep-serving",
            help="Leave the service up until Ctrl-C (default: only at a terminal).",
        ),
    ] = None,
    directory: Annotated[
        Path, typer.Option("--directory", metavar="DIR", help="Where plans and logs go.")
    ] = Path(".demo"),
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", min=1.0, max=3600.0, metavar="S", help="How long to measure this machine."
        ),
    ] = PROFILE_SECONDS,
    training_steps: Annotated[
        int,
        typer.Option("--steps", min=2, max=10_000, metavar="N", help="How many steps to train."),
    ] = TRAINING_STEP_COUNT,
    profile: Annotated[
        Path | None,
        typer.Option(
            "--profile",
            metavar="FILE",
            help="Take what `meshwright profile` wrote of its CPU ranks, and measure nothing.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Plan, store, compare, profile this machine, train on it, and measure."""
    from planner.cli.demo.machine import Machine, check_has_cpu_ranks
    from planner.cli.demo.service import running_service
    from planner.cli.demo.steps import Steps

    check_extras("meshwright demo", "api", "executor.launcher")
    if profile is not None:
        check_has_cpu_ranks(profile)
    directory.mkdir(parents=True, exist_ok=True)
    console = stderr() if as_json else stdout()
    steps = Steps(console, step_count=STEP_COUNT)
    with ExitStack() as running:
        with steps.step("start the service on SQLite"):
            service = running.enter_context(running_service(directory))
        plan_ids, url = _plan_for_gpus(service, steps, console)
        machine = Machine(profile=profile, rank_count=RANK_COUNT, seconds=seconds)
        story = _train_here(steps, console, directory, machine, training_steps=training_steps)
        if as_json:
            told = {"plans": plan_ids, "compare_url": url, **story}
            typer.echo(json.dumps(told, indent=2))
        if keep_serving or (keep_serving is None and sys.stdin.isatty()):
            _serve_until_interrupted(service, console, url)


def _serve_until_interrupted(service: Service, console: Console, url: str) -> None:
    console.print(f"\nserving at [bold]{url}[/]\npress Ctrl-C to stop")
    try:
        service.process.wait()
    except KeyboardInterrupt:
        console.print("stopped")


def _plan_for_gpus(service: Service, steps: Steps, console: Console) -> tuple[list[str], str]:
    from planner.cli.views.demo import plans_table
    from planner.schema.plan import Plan

    plans = []
    for description, request in GPU_REQUESTS:
        with steps.step(description):
            plans.append(Plan.from_fields(service.store_plan(request), source="the service"))
    console.print()
    console.print(plans_table(plans))
    plan_ids = [plan.id for plan in plans]
    url = service.compare_url(plan_ids)
    console.print(f"compare them at [bold]{url}[/]\n")
    return plan_ids, url


def _train_here(
    steps: Steps, console: Console, directory: Path, machine: Machine, *, training_steps: int
) -> dict[str, Any]:
    """Profile, plan, train, calibrate; return what came of it, as JSON has it."""
    from planner.cli.demo.calibrating import calibrated_step
    from planner.cli.demo.training import train
    from planner.cli.plan import write_document
    from planner.cli.views.demo import learnt_lines, losses_line, measured_table, plans_table

    plan_path = directory / "plan.json"
    with steps.step(machine.description):
        cluster, warnings = machine.cluster_file(directory)
    for warning in warnings:
        console.print(f"[yellow]{warning}[/]")
    with steps.step(f"plan {CPU_MODEL} on them"):
        plan = _cpu_plan(cluster)
        write_document(plan_path, plan)
    with steps.step(f"train {training_steps} steps on these ranks over gloo"):
        report = train(plan_path, step_count=training_steps, directory=directory)
    with steps.step("calibrate on this run"):
        learnt = calibrated_step(plan, directory)
    console.print()
    console.print(plans_table([plan]))
    console.print(losses_line(report))
    console.print(measured_table(plan, report))
    for line in learnt_lines(learnt, directory):
        console.print(line)
    return {
        "run": report.model_dump(mode="json"),
        "warnings": warnings,
        "calibrated_step_seconds": None if learnt is None else learnt.model_dump(mode="json"),
    }


def _cpu_plan(cluster: Path) -> Plan:
    from planner import planning
    from planner.cli.demo.steps import DemoError
    from planner.cli.inputs import read_resolved_cluster, read_resolved_model
    from planner.schema.job import Job

    job = Job.from_fields(CPU_JOB, source="the demo")
    answer = planning.plan(read_resolved_model(CPU_MODEL), read_resolved_cluster(str(cluster)), job)
    if answer.status == "infeasible":
        raise DemoError(f"no plan of {CPU_MODEL} is likely enough to fit on the ranks of {cluster}")
    return answer
