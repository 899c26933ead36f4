"""Rows: what runs of the regret benchmark measured, kept in files to be judged again later."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from planner.schema.cluster import Cluster
from planner.schema.document import Part
from planner.schema.strategy import Strategy


class MeasuredRow(Part):
    """A strategy with the seconds of each of its timed steps, or why the executor refuses it."""

    strategy: Strategy
    step_seconds: tuple[float, ...] = ()
    refusal: str | None = None


class MeasuredModel(Part):
    """All strategies of one model, on the cluster that they were planned for."""

    name: str
    cluster: Cluster
    conditions: str
    rows: Annotated[tuple[MeasuredRow, ...], Field(min_length=1)]


def typical_seconds(rows: Sequence[MeasuredRow]) -> list[float | None]:
    """Return the median step of each row, `None` where it was refused.

    Steps are in the order of rounds. What else the machine does slows some rounds as a whole, of
    which rows that ran in few of them would be seen to be faster or slower than others: each step
    is scaled to a usual round, by the median of the rows that ran in all.
    """
    count = max(len(row.step_seconds) for row in rows)
    always = [row.step_seconds for row in rows if len(row.step_seconds) == count]
    rounds = [statistics.median(steps) for steps in zip(*always, strict=True)]
    usual = statistics.median(rounds) if rounds else 0.0
    return [
        statistics.median(
            seconds * usual / paced
            for seconds, paced in zip(row.step_seconds, rounds, strict=False)
        )
        if row.step_seconds
        else None
        for row in rows
    ]


def read_rows(paths: Iterable[Path]) -> list[MeasuredModel]:
    """Return the models of all files; a later file's model stands in for an earlier one's.

    Raises:
        OSError: if a file cannot be read.
        ValueError: if it is none that `write_rows` wrote.
    """
    found: dict[str, MeasuredModel] = {}
    for path in paths:
        for fields in json.loads(path.read_text(encoding="utf-8")):
            model = MeasuredModel.model_validate(fields)
            found[model.name] = model
    return list(found.values())


def write_rows(path: Path, models: Iterable[MeasuredModel]) -> None:
    """Write what was measured, a list of models."""
    fields = [model.model_dump(mode="json") for model in models]
    path.write_text(json.dumps(fields), encoding="utf-8")
