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

    from planner.cli.demo.service import Service
    from planner.cli.demo.steps import Steps
    from planner.schema.plan import Plan
    from planner.schema.run import RunReport

STEP_COUNT = 6
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
    as_json: JsonOption = False,
) -> None:
    """Plan, store, compare, profile this machine, train on it, and measure."""
    from planner.cli.demo.service import running_service
    from planner.cli.demo.steps import Steps

    check_extras("meshwright demo", "api", "executor.launcher")
    directory.mkdir(parents=True, exist_ok=True)
    console = stderr() if as_json else stdout()
    steps = Steps(console, step_count=STEP_COUNT)
    with ExitStack() as running:
        with steps.step("start the service on SQLite"):
            service = running.enter_context(running_service(directory))
        plan_ids, url = _plan_for_gpus(service, steps, console)
        report = _train_here(steps, console, directory)
        if as_json:
            story = {"plans": plan_ids, "compare_url": url, "run": report.model_dump(mode="json")}
            typer.echo(json.dumps(story, indent=2))
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


def _train_here(steps: Steps, console: Console, directory: Path) -> RunReport:
    from planner.cli.demo.machine import measured_cluster_file
    from planner.cli.demo.training import train
    from planner.cli.plan import write_document
    from planner.cli.views.demo import losses_line, measured_table, plans_table

    plan_path = directory / "plan.json"
    with steps.step("measure the four CPU ranks of this machine"):
        cluster = measured_cluster_file(directory, rank_count=RANK_COUNT, seconds=PROFILE_SECONDS)
    with steps.step(f"plan {CPU_MODEL} on them"):
        plan = _cpu_plan(cluster)
        write_document(plan_path, plan)
    with steps.step(f"train {TRAINING_STEP_COUNT} steps on four ranks over gloo"):
        report = train(plan_path, step_count=TRAINING_STEP_COUNT, directory=directory)
    console.print()
    console.print(plans_table([plan]))
    console.print(losses_line(report))
    console.print(measured_table(plan, report))
    return report


def _cpu_plan(cluster: Path) -> Plan:
    from planner import planning
    from planner.cli.demo.steps import DemoError
    from planner.cli.inputs import read_resolved_cluster, read_resolved_model
    from planner.schema.job import Job

    job = Job.from_fields(CPU_JOB, source="the demo")
    answer = planning.plan(read_resolved_model(CPU_MODEL), read_resolved_cluster(str(cluster)), job)
    if answer.status == "infeasible":
        raise DemoError(f"{CPU_MODEL} does not fit on the ranks of {cluster}")
    return answer
