"""`meshwright frontier`: the plans among which step, memory and cost have to be traded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.console import print_document, stdout, work_progress
from planner.cli.dask import dask_pool
from planner.cli.failures import NEGATIVE_ANSWER, out_of_time
from planner.cli.inputs import read_resolved_cluster, read_resolved_model
from planner.cli.options import (
    BatchOption,
    CalibrationOption,
    ClusterArgument,
    DaskOption,
    FastestOption,
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

if TYPE_CHECKING:
    from planner.requests.inquiry import Inquiry
    from planner.schema.frontier import Frontier

_LEAST_SECONDS = 1.0


def frontier(  # noqa: PLR0913 - one parameter per option; tests freeze the surface
    model: ModelArgument,
    cluster: ClusterArgument,
    points: Annotated[
        int,
        typer.Option("--points", metavar="N", min=1, max=64, help="Memory caps per device count."),
    ] = 8,
    alternatives: Annotated[
        int,
        typer.Option(
            "--alternatives",
            metavar="K",
            min=0,
            max=64,
            help="List the best K plans of other degrees, and of other choices.",
        ),
    ] = 0,
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
    fastest: FastestOption = False,
    solver_seconds: SolverSecondsOption = None,
    dask: DaskOption = None,
    json: JsonOption = False,
) -> None:
    """Show the Pareto front of step, memory and cost, each point proven."""
    fields = {
        "global_batch_size": global_batch_size,
        "sequence_length": sequence_length,
        "precision": precision,
        "optimizer": optimizer,
        "stack": stack,
        "framework": framework,
    }
    limits = {
        "fits_probability": fits_probability,
        "simplicity_ratio": 0.0 if fastest else None,
        "solver_seconds": solver_seconds,
    }
    wanted = read_job(job, fields=fields, limits=limits, calibration=calibration, settings=settings)
    given_model, given_cluster = read_resolved_model(model), read_resolved_cluster(cluster)
    from planner.answers.alternatives import best_alternatives
    from planner.answers.frontier import frontier as front_of
    from planner.cli.views.frontier import frontier_view
    from planner.requests.inquiry import Inquiry
    from planner.requests.resolution import resolved_request

    request = resolved_request(given_model, given_cluster, wanted)
    seconds = request.job.resolved.limits.solver_seconds
    with dask_pool(dask) as pool, work_progress("frontier") as listen:
        inquiry = Inquiry.within(seconds, share_ratio=0.1, listen=listen, pool=pool)
        degrees, choices = best_alternatives(request, alternatives, inquiry=inquiry)
        found = front_of(
            request,
            inquiry=inquiry,
            point_count=points,
            alternatives=degrees,
            other_choices=choices,
        )
        if found.status == "partial" and not found.points:
            raise out_of_time(seconds)
        if not found.points:
            found = inquiry.elsewhere(_with_reasons, found)
    if json:
        print_document(found)
    else:
        stdout().print(frontier_view(found))
    if not found.points:
        raise typer.Exit(NEGATIVE_ANSWER)


def _with_reasons(front: Frontier, *, inquiry: Inquiry) -> Frontier:
    """Return a front without points with what binds and what would help, as `plan` says it."""
    from planner import planning
    from planner.schema.plan import Infeasible

    job = front.job.resolved
    seconds = max(inquiry.seconds_left, _LEAST_SECONDS)
    limits = job.limits.model_copy(update={"solver_seconds": seconds})
    answer = planning.plan(front.model, front.cluster, job.model_copy(update={"limits": limits}))
    if not isinstance(answer, Infeasible):
        return front
    return front.model_copy(update={"infeasible": answer.model_copy(update={"job": front.job})})
