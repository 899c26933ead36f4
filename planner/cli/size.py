"""`meshwright size`: which devices, and how many, train so many tokens in time."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.console import print_document, stdout, work_progress
from planner.cli.dask import dask_pool
from planner.cli.failures import NEGATIVE_ANSWER, out_of_time
from planner.cli.inputs import read_resolved_model
from planner.cli.options import (
    BatchOption,
    CalibrationOption,
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


def size(  # noqa: PLR0913 - one parameter per option; tests freeze the surface
    model: ModelArgument,
    device: Annotated[
        list[str],
        typer.Option("--device", metavar="KIND", help="A kind of device to try; may be repeated."),
    ],
    tokens: Annotated[
        float, typer.Option("--tokens", metavar="N", help="Tokens to train, such as 1.4e12.")
    ],
    days: Annotated[
        float, typer.Option("--days", metavar="D", help="Days within which the run must end.")
    ],
    budget: Annotated[
        float | None,
        typer.Option("--budget", metavar="MONEY", help="The most that the run may cost."),
    ] = None,
    cheapest: Annotated[
        bool,
        typer.Option("--cheapest/--fewest", help="Least money, or fewest devices (the default)."),
    ] = False,
    devices_per_node: Annotated[
        int | None,
        typer.Option(
            "--devices-per-node", metavar="N", help="Devices in a node; default: as they are sold."
        ),
    ] = None,
    max_devices: Annotated[
        int, typer.Option("--max-devices", metavar="N", help="The most devices to consider.")
    ] = 16384,
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
    """Find the fewest or cheapest devices that train so many tokens in time."""
    fields = {
        "global_batch_size": global_batch_size,
        "sequence_length": sequence_length,
        "precision": precision,
        "optimizer": optimizer,
        "stack": stack,
        "framework": framework,
    }
    wish: dict[str, Any] = {
        "tokens": tokens,
        "days": days,
        "budget": budget,
        "goal": "cheapest" if cheapest else "fewest",
        "devices": _devices(device),
        "devices_per_node": devices_per_node,
        "max_devices": max_devices,
    }
    limits = {
        "fits_probability": fits_probability,
        "simplicity_ratio": 0.0 if fastest else None,
        "solver_seconds": solver_seconds,
    }
    wanted = read_job(job, fields=fields, limits=limits, calibration=calibration, settings=settings)
    from planner.answers import capacity
    from planner.cli.views.sizing import sizing_view
    from planner.requests.inquiry import Inquiry
    from planner.schema.sizing import SizingWish

    asked = SizingWish.from_fields(wish, source="the options")
    given_model = read_resolved_model(model)
    with dask_pool(dask) as pool, work_progress("sizing") as listen:
        seconds = wanted.limits.solver_seconds
        inquiry = Inquiry.within(seconds, share_ratio=0.1, listen=listen, pool=pool)
        found = capacity.size(given_model, wanted, asked, inquiry=inquiry)
    if found.binding == "time_limit":
        raise out_of_time(wanted.limits.solver_seconds)
    if json:
        print_document(found)
    else:
        stdout().print(sizing_view(found))
    if found.status == "none":
        raise typer.Exit(NEGATIVE_ANSWER)


def _devices(names: list[str]) -> list[str]:
    """Return the profiles of the devices that are told, and say which short names were read how."""
    from planner.importers.cluster.known_devices import known_device

    known = [known_device(name, field="--device") for name in names]
    for one in known:
        if one.assumption is not None:
            typer.echo(one.assumption, err=True)
    return [one.name for one in known]
