"""`meshwright estimate`: what a strategy that the user wrote would cost."""

from __future__ import annotations

import json as json_format
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.console import print_document, stdout
from planner.cli.dask import dask_pool
from planner.cli.failures import ERROR, NEGATIVE_ANSWER, error_fields
from planner.cli.given import Given, read_given
from planner.cli.inputs import (
    read_resolved_cluster,
    read_resolved_model,
    read_strategies,
)
from planner.cli.options import (
    BatchOption,
    CalibrationOption,
    ClusterArgument,
    DaskOption,
    FitsOption,
    JobOption,
    JsonOption,
    ModelArgument,
    OptimizerOption,
    PrecisionOption,
    SequenceOption,
    SettingsOption,
    StackOption,
    read_job,
)
from planner.errors import InputError

_READ_AT_ONCE = 256

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner.schema.job import Job
    from planner.schema.plan import Estimate, ResolvedCluster, ResolvedModel
    from planner.schema.strategy import Strategy

    Placed = tuple[int, Strategy | InputError]


def estimate(  # noqa: PLR0913 - one parameter per option; tests freeze the surface
    model: ModelArgument,
    cluster: ClusterArgument,
    strategy: Annotated[
        Path | None,
        typer.Option("--strategy", metavar="FILE", help="A strategy, a plan or your config."),
    ] = None,
    strategies: Annotated[
        Path | None,
        typer.Option("--strategies", metavar="FILE", help="Strategies, one JSON object a line."),
    ] = None,
    job: JobOption = None,
    global_batch_size: BatchOption = None,
    sequence_length: SequenceOption = None,
    precision: PrecisionOption = None,
    optimizer: OptimizerOption = None,
    stack: StackOption = None,
    calibration: CalibrationOption = None,
    settings: SettingsOption = None,
    fits_probability: FitsOption = None,
    dask: DaskOption = None,
    json: JsonOption = False,
) -> None:
    """Price one strategy, or a file of them, one result a line."""
    if (strategy is None) == (strategies is None):
        raise typer.BadParameter(
            "give exactly one of --strategy and --strategies", param_hint="--strategy"
        )
    fields = {
        "global_batch_size": global_batch_size,
        "sequence_length": sequence_length,
        "precision": precision,
        "optimizer": optimizer,
        "stack": stack,
    }
    named = read_resolved_model(model), read_resolved_cluster(cluster)
    given = None if strategy is None else read_given(strategy, *named)
    own = given.job if given is not None and given.names and job is None else None
    request = (
        *named,
        read_job(
            job,
            fields=fields,
            limits={"fits_probability": fits_probability},
            fallback=own,
            calibration=calibration,
            settings=settings,
        ),
    )
    if given is not None:
        _estimate_one(request, given, as_json=json)
    elif strategies is not None:
        _estimate_all(request, strategies, dask=dask, as_json=json)


def _estimate_one(
    request: tuple[ResolvedModel, ResolvedCluster, Job], given: Given, *, as_json: bool
) -> None:
    from planner import planning
    from planner.cli.views.plan import estimate_view

    with given.words():
        found = planning.estimate(*request, given.strategy)
    if as_json:
        print_document(found)
    else:
        stdout().print(estimate_view(found))
    if not found.prediction.fits:
        raise typer.Exit(NEGATIVE_ANSWER)


def _estimate_all(
    request: tuple[ResolvedModel, ResolvedCluster, Job],
    path: Path,
    *,
    dask: str | None,
    as_json: bool,
) -> None:
    from planner.cli.views.estimates import estimates_view

    price = partial(_priced, request, as_json=as_json)
    kept = []
    codes = set()
    with dask_pool(dask) as pool:
        for some in map(price, _read(path)) if pool is None else pool.in_order(price, _read(path)):
            for shown, code in some:
                codes.add(code)
                if as_json:
                    typer.echo(shown)
                else:
                    kept.append(shown)
    if not as_json:
        stdout().print(estimates_view(kept))
    if ERROR in codes or NEGATIVE_ANSWER in codes:
        raise typer.Exit(ERROR if ERROR in codes else NEGATIVE_ANSWER)


def _read(path: Path) -> Iterator[Sequence[Placed]]:
    """Yield the strategies of the file, or what is wrong with them, with their places."""
    waiting = enumerate(read_strategies(path))
    while some := list(islice(waiting, _READ_AT_ONCE)):
        yield some


def _priced(
    request: tuple[ResolvedModel, ResolvedCluster, Job], some: Sequence[Placed], *, as_json: bool
) -> list[tuple[Any, int]]:
    """Return what each strategy costs, or why it is refused, as JSON or not, and its exit code."""
    from planner import planning

    strategies = [one for _, one in some if not isinstance(one, InputError)]
    answers = planning.estimates(*request, strategies)
    priced = []
    for index, one in some:
        answer = one if isinstance(one, InputError) else next(answers)
        priced.append((_line(index, answer) if as_json else answer, _exit_code(answer)))
    return priced


def _line(index: int, answer: Estimate | InputError) -> str:
    if isinstance(answer, InputError):
        return json_format.dumps({"index": index, "status": "error", "error": error_fields(answer)})
    fields = {
        "index": index,
        "status": "estimated",
        "strategy": answer.strategy.model_dump(mode="json"),
        "prediction": answer.prediction.model_dump(mode="json"),
    }
    return json_format.dumps(fields)


def _exit_code(answer: Estimate | InputError) -> int:
    if isinstance(answer, InputError):
        return ERROR
    return 0 if answer.prediction.fits else NEGATIVE_ANSWER
