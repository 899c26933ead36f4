"""`meshwright plan`: the best strategy for a model on a cluster, with its proof."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.console import print_document, search_progress, stdout
from planner.cli.dask import dask_pool
from planner.cli.failures import NEGATIVE_ANSWER
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
    ObjectiveOption,
    OptimizerOption,
    PrecisionOption,
    SequenceOption,
    SettingsOption,
    StackOption,
    read_job,
)
from planner.errors import InputError

if TYPE_CHECKING:
    from planner.schema.bound_record import BoundRecord
    from planner.schema.document import Document
    from planner.schema.plan import Infeasible, Plan

DegreeText = Annotated[
    str | None, typer.Option(metavar="N|N..M", help="Fix (4) or bound (2..8) the value.")
]


def plan(  # noqa: PLR0913 - one parameter per option; tests freeze the surface
    model: ModelArgument,
    cluster: ClusterArgument,
    job: JobOption = None,
    global_batch_size: BatchOption = None,
    sequence_length: SequenceOption = None,
    precision: PrecisionOption = None,
    optimizer: OptimizerOption = None,
    stack: StackOption = None,
    framework: FrameworkOption = None,
    calibration: CalibrationOption = None,
    settings: SettingsOption = None,
    objective: ObjectiveOption = None,
    tensor_parallel_degree: DegreeText = None,
    pipeline_parallel_degree: DegreeText = None,
    data_parallel_shard_degree: DegreeText = None,
    data_parallel_replicate_degree: DegreeText = None,
    expert_parallel_degree: DegreeText = None,
    micro_batch_size: DegreeText = None,
    memory_headroom_ratio: Annotated[
        float | None, typer.Option(metavar="0..1", help="Device memory to leave free.")
    ] = None,
    fits_probability: FitsOption = None,
    fastest: FastestOption = False,
    solver_seconds: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Stop searching after this long.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the plan there.")
    ] = None,
    certificate_out: Annotated[
        Path | None,
        typer.Option(
            "--certificate-out",
            metavar="FILE",
            help="Write what `verify --certificate` needs to evaluate the lower bound again.",
        ),
    ] = None,
    dask: DaskOption = None,
    json: JsonOption = False,
) -> None:
    """Find the best legal strategy that fits (the fastest, unless told otherwise), and prove it."""
    fields = {
        "global_batch_size": global_batch_size,
        "sequence_length": sequence_length,
        "precision": precision,
        "optimizer": optimizer,
        "stack": stack,
        "framework": framework,
        "objective": objective,
    }
    limits = {
        "tensor_parallel_degree": tensor_parallel_degree,
        "pipeline_parallel_degree": pipeline_parallel_degree,
        "data_parallel_shard_degree": data_parallel_shard_degree,
        "data_parallel_replicate_degree": data_parallel_replicate_degree,
        "expert_parallel_degree": expert_parallel_degree,
        "micro_batch_size": micro_batch_size,
        "memory_headroom_ratio": memory_headroom_ratio,
        "fits_probability": fits_probability,
        "simplicity_ratio": 0.0 if fastest else None,
        "solver_seconds": solver_seconds,
    }
    if out is not None:
        check_place(out, option="--out")
    if certificate_out is not None:
        check_place(certificate_out, option="--certificate-out")
    wanted = read_job(job, fields=fields, limits=limits, calibration=calibration, settings=settings)
    given_model, given_cluster = read_resolved_model(model), read_resolved_cluster(cluster)
    from planner import planning

    make = planning.plan if certificate_out is None else planning.plan_with_record
    request = given_model, given_cluster, wanted
    with dask_pool(dask) as pool, search_progress("planning") as listen:
        made: Any
        if pool is None:
            made = make(*request, on_progress=listen)
        else:
            made = pool.submit(make, *request, on_progress=listen).result()
    answer: Plan | Infeasible = (
        made if certificate_out is None else _recorded(made, certificate_out)
    )
    _show(answer, out=out, as_json=json)
    if answer.status == "infeasible":
        raise typer.Exit(NEGATIVE_ANSWER)


def _recorded(answer: tuple[Plan, BoundRecord] | Infeasible, path: Path) -> Plan | Infeasible:
    """Return the answer, with what its bound holds by written to a file."""
    if not isinstance(answer, tuple):
        return answer
    planned, record = answer
    write_text(path, record.to_json(), option="--certificate-out")
    return planned


def _show(answer: Plan | Infeasible, *, out: Path | None, as_json: bool) -> None:
    from planner.cli.views.plan import answer_view

    if out is not None:
        write_document(out, answer)
    if as_json:
        print_document(answer)
        return
    console = stdout()
    console.print(answer_view(answer))
    if out is not None:
        console.print(f"written to {out}", markup=False)


def write_document(path: Path, document: Document) -> None:
    """Write `document` as JSON to `path`.

    Raises:
        InputError: if the place cannot be written to.
    """
    write_text(path, document.to_json(), option="--out")


def write_text(path: Path, text: str, *, option: str) -> None:
    """Write `text` to the `path` that `option` names.

    Raises:
        InputError: if the place cannot be written to.
    """
    check_place(path, option=option)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _no_place(path, error.strerror, option=option) from None


def check_place(path: Path, *, option: str) -> None:
    """Raise before the work rather than after it where the result could not be kept.

    Raises:
        InputError: if `path` is a directory or lies in none.
    """
    if path.is_dir():
        raise _no_place(path, "it is a directory", option=option)
    if not path.parent.is_dir():
        raise _no_place(path, "there is no such directory", option=option)


def _no_place(path: Path, reason: str | None, *, option: str) -> InputError:
    return InputError(
        f"cannot be written: {reason}",
        field=option,
        value=str(path),
        remedy="name a file in a directory that exists and that you may write to",
    )
