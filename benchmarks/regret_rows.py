"""Rows: what runs of the regret benchmark measured, kept in files to be judged again later."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import Field

from planner.schema.cluster import Cluster
from planner.schema.document import Part
from planner.schema.trial import Trial


class MeasuredModel(Part):
    """All strategies of one model, on the cluster that they were planned for."""

    name: str
    cluster: Cluster
    conditions: str
    rows: Annotated[tuple[Trial, ...], Field(min_length=1)]


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
