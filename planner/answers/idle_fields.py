"""Idle fields: what a job states of its program that counts for nothing in a layout.

A job may describe what its layout, its model or its devices have no use for: a scale for every row
of products in 8 bits where all have 16, broadcasts of parameters where nothing is shared. A field
is idle where each other value that the job could have gives the very same prediction.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from pydantic import ValidationError

from planner.cost.step import predictions
from planner.errors import InputError
from planner.hardware import ClusterHardware
from planner.schema.job import Job
from planner.schema.plan import Prediction
from planner.schema.strategy import Strategy
from planner.workload.layer import ModelWorkload

# What is trained and asked for, of which each has its own effect or none on a price
_OF_NO_PROGRAM = frozenset(
    {
        "adapters",
        "calibration",
        "framework",
        "global_batch_size",
        "limits",
        "objective",
        "optimizer",
        "precision",
        "schema_version",
        "sequence_length",
        "stack",
    }
)


def idle_words(
    workload: ModelWorkload, hardware: ClusterHardware, job: Job, strategy: Strategy
) -> Iterator[str]:
    """Yield a sentence for each field that a job states and that changes nothing of a layout."""
    before = None
    for name in sorted(Job.model_fields.keys() - _OF_NO_PROGRAM):
        value = getattr(job, name)
        if value == Job.model_fields[name].default:
            continue
        before = before or _priced(workload, hardware, job, strategy)
        others = [_changed(job, name, other) for other in _others(name, value)]
        after = [_priced(workload, hardware, one, strategy) for one in others if one is not None]
        legal = [one for one in after if one is not None]
        if legal and all(one == before for one in legal):
            yield f"{name} {_spelled(value)} changes nothing of this layout's step or memory"


def _others(name: str, value: object) -> Iterator[object]:
    yield Job.model_fields[name].default
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, Enum):
        yield from (one for one in type(value) if one is not value)
    elif isinstance(value, int):
        yield 1


def _changed(job: Job, name: str, value: object) -> Job | None:
    """Return the job with another value, `None` where it cannot have that."""
    try:
        return Job.model_validate({**job.model_dump(), name: value})
    except ValidationError:
        return None


def _priced(
    workload: ModelWorkload, hardware: ClusterHardware, job: Job, strategy: Strategy
) -> Prediction | None:
    """Return what the layout takes, `None` where the job cannot have it."""
    try:
        return next(predictions(workload, hardware, job, [strategy]))
    except InputError:
        return None


def _spelled(value: Any) -> str:
    return str(value).lower()
