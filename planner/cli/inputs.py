"""What the arguments name, read: models, clusters, plans and strategies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from planner.errors import DocumentError, InputError

if TYPE_CHECKING:
    from planner.schema.plan import Plan, ResolvedCluster, ResolvedModel
    from planner.schema.strategy import Strategy

STRATEGIES_BYTES_LIMIT = 256 * 2**20


def read_resolved_model(reference: str) -> ResolvedModel:
    """Return the model behind a known name or a path.

    Raises:
        InputError: if there is no such model or file, or its content is bad.
    """
    from planner.requests.references import read_model

    return read_model(reference)


def read_resolved_cluster(reference: str) -> ResolvedCluster:
    """Return the cluster behind a short form or a path; what was assumed of it is told on stderr.

    Raises:
        InputError: if the form or the file's content is bad.
    """
    from planner.requests.references import read_cluster

    cluster = read_cluster(reference)
    for note in cluster.assumptions:
        typer.echo(f"{Path(reference).name}: {note}", err=True)
    return cluster


def read_plan(path: Path) -> Plan:
    """Return the plan in the file at `path`.

    Raises:
        InputError: if it cannot be read, or is an infeasible answer rather than a plan.
    """
    from planner.schema.document import read_fields
    from planner.schema.plan import Plan

    fields = read_fields(path)
    if fields.get("status") == "infeasible":
        raise InputError(
            "is an infeasible answer: it holds no strategy",
            field=str(path),
            value="infeasible",
            remedy="plan again with one of the relaxations that it names",
        )
    if "strategy" not in fields and "certificate" not in fields:
        raise InputError(
            "is not a plan", field=str(path), remedy="give what `meshwright plan --out FILE` wrote"
        )
    return Plan.from_fields(fields, source=str(path))


def read_strategy(path: Path) -> Strategy:
    """Return the strategy in the file at `path`, or the strategy of the plan there.

    Raises:
        InputError: if the file cannot be read or a field is bad.
    """
    from planner.schema.document import read_fields

    return _strategy(read_fields(path), source=str(path))


def read_job_of(path: Path) -> dict[str, Any] | None:
    """Return the fields of the job of the plan at `path`, `None` if a strategy is there.

    Raises:
        InputError: if the file cannot be read.
    """
    from planner.schema.document import read_fields

    job = read_fields(path).get("job")
    resolved = job.get("resolved") if isinstance(job, dict) else None
    return dict(resolved) if isinstance(resolved, dict) else None


def read_strategies(path: Path) -> Iterator[Strategy | InputError]:
    """Yield what each line of the JSON-lines file at `path` says: a strategy, or what is wrong.

    Raises:
        InputError: if the file itself cannot be read or has no line.
    """
    from planner.schema.document import parse_fields

    lines = _lines(path)
    if not lines:
        raise DocumentError(
            "holds no strategy", field=str(path), remedy="write one JSON object a line"
        )
    for number, line in lines:
        source = f"{path} line {number}"
        try:
            yield _strategy(parse_fields(line, source=source), source=source)
        except InputError as error:
            yield error


def _strategy(fields: dict[str, Any], *, source: str) -> Strategy:
    from planner.schema.strategy import Strategy

    nested = fields.get("strategy")
    chosen = nested if isinstance(nested, dict) else fields
    return Strategy.from_fields(chosen, source=source)


def _lines(path: Path) -> list[tuple[int, bytes]]:
    from planner.schema.files import file_content

    content = file_content(
        path, bytes_limit=STRATEGIES_BYTES_LIMIT, too_large="split it into several files"
    )
    numbered = enumerate(content.splitlines(), start=1)
    return [(number, line) for number, line in numbered if line.strip()]
