"""Arguments and options that several commands share, and the job that they describe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from planner.cli.degrees import degree_interval

if TYPE_CHECKING:
    from planner.schema.job import Job

PrecisionName = Literal["bf16", "fp16", "fp32", "fp8"]
OptimizerName = Literal["adamw", "adam8bit", "sgd", "adafactor", "muon"]
StackName = Literal["torch", "megatron", "deepspeed"]
FrameworkName = Literal[
    "torchtitan", "megatron-lm", "deepspeed", "accelerate", "axolotl", "llama-factory"
]
ObjectiveName = Literal["throughput", "cost", "memory", "devices"]

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="A name that `meshwright models` lists, or a config.json."
    ),
]
ClusterArgument = Annotated[
    str,
    typer.Argument(
        metavar="CLUSTER",
        help="64xh100 (in nodes as they are sold), 16x8xh100-sxm5-80gb (nodes x devices), "
        "16xp5.48xlarge (a cloud's instances), or a YAML/JSON file.",
    ),
]
PlanArgument = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan file (JSON).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, errors included.")]
JobOption = Annotated[
    Path | None,
    typer.Option("--job", metavar="FILE", help="Job document (YAML or JSON); options override it."),
]
BatchOption = Annotated[
    int | None,
    typer.Option("--global-batch-size", metavar="N", help="Sequences per optimizer step."),
]
SequenceOption = Annotated[
    int | None, typer.Option("--sequence-length", metavar="N", help="Tokens per sequence.")
]
PrecisionOption = Annotated[
    PrecisionName | None,
    typer.Option("--precision", metavar="NAME", help="bf16, fp16, fp32 or fp8."),
]
OptimizerOption = Annotated[
    OptimizerName | None,
    typer.Option("--optimizer", metavar="NAME", help="adamw, adam8bit, sgd, adafactor or muon."),
]
StackOption = Annotated[
    StackName | None, typer.Option("--stack", metavar="NAME", help="torch, megatron or deepspeed.")
]
FrameworkOption = Annotated[
    FrameworkName | None,
    typer.Option(
        "--framework",
        metavar="NAME",
        help="Plan only what its configuration can say: torchtitan, megatron-lm, deepspeed,"
        " accelerate, axolotl or llama-factory.",
    ),
]
ObjectiveOption = Annotated[
    ObjectiveName | None,
    typer.Option(
        "--objective",
        metavar="NAME",
        help="throughput, cost (per token), memory (of the fullest device) or devices (fewest).",
    ),
]
CalibrationOption = Annotated[
    Path | None,
    typer.Option(
        "--calibration", metavar="PROFILE", help="Price with what `meshwright calibrate` wrote."
    ),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Any field of the job, such as limits.context_parallel_degree=1..4; may be repeated.",
    ),
]
FitsOption = Annotated[
    float | None,
    typer.Option(
        "--fits-probability",
        metavar="0.5..1",
        help="Least chance of fitting that a plan may have: 0.95 unless given.",
    ),
]
FastestOption = Annotated[
    bool,
    typer.Option(
        "--fastest",
        help="Take the fastest plan, however complex. Else the simplest within 2% of it is taken "
        "(limits.simplicity_ratio of a job file).",
    ),
]
SolverSecondsOption = Annotated[
    float | None,
    typer.Option("--solver-seconds", metavar="SECONDS", help="Stop searching after this long."),
]

DaskOption = Annotated[
    str | None,
    typer.Option(
        "--dask",
        metavar="ADDRESS",
        envvar="MESHWRIGHT_DASK_SCHEDULER",
        help="Work on the Dask cluster of this scheduler, such as tcp://10.0.0.5:8786.",
    ),
]


def read_job(
    path: Path | None,
    *,
    fields: Mapping[str, object],
    limits: Mapping[str, object],
    fallback: Mapping[str, object] | None = None,
    calibration: Path | None = None,
    settings: Iterable[str] | None = None,
) -> Job:
    """Return the job in `path` with the given options, then `settings`, in place of its own.

    Without a path the `fallback` holds, or the default job. The job carries what the
    profile at `calibration` learnt.

    An option that is `None` was not given. Degrees among `limits` are text: `8`, or `2..8`.

    Raises:
        InputError: naming the option or the file's field that is wrong.
    """
    from planner.schema.document import read_fields
    from planner.schema.job import Job

    document = read_fields(path) if path is not None else dict(fallback or {})
    given = {name: value for name, value in fields.items() if value is not None}
    limited = {name: _limit(name, value) for name, value in limits.items() if value is not None}
    merged: dict[str, Any] = {**document, **given}
    if limited:
        own = document.get("limits", {})
        merged["limits"] = {**own, **limited} if isinstance(own, dict) else own
    if settings:
        from planner.cli.settings import with_settings

        merged = with_settings(merged, settings)
    source = str(path) if path is not None else "the options"
    if calibration is None:
        return Job.from_fields(merged, source=source)
    return calibrated_job(
        Job.from_fields({**merged, "calibration": None}, source=source), calibration
    )


def calibrated_job(job: Job, path: Path) -> Job:
    """Return the job with what the profile at `path` learnt.

    Raises:
        InputError: if the profile cannot be read.
    """
    from planner.schema.calibration import CalibrationProfile

    learnt = CalibrationProfile.read(path).calibration()
    return job.model_copy(update={"calibration": learnt})


def _limit(name: str, value: object) -> object:
    if not isinstance(value, str):
        return value
    return degree_interval(value, field=f"--{name.replace('_', '-')}")
