"""What jobs ask for, field by field, where plans that are compared were asked for differently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

from pydantic import BaseModel

from planner.schema.job import Calibration, DegreeLimit, Job

Answer = str | int | float | bool | None


def differing_answers(jobs: Sequence[Job]) -> Iterator[tuple[str, tuple[Answer, ...]]]:
    """Yield the path of each field that is not the same in all `jobs`, with the value of each.

    A limit of degrees reads `4`, `2 to 8`, `at least 2` or `any`; what a job lacks is `None`.
    """
    answers = [dict(_answers(job)) for job in jobs]
    for path in dict.fromkeys(path for each in answers for path in each):
        values = tuple(each.get(path) for each in answers)
        if any(value != values[0] for value in values):
            yield path, values


def _answers(part: BaseModel, prefix: str = "") -> Iterator[tuple[str, Answer]]:
    for name in type(part).model_fields:
        path, value = f"{prefix}{name}", getattr(part, name)
        if name == "schema_version":
            continue
        if isinstance(value, BaseModel) and not isinstance(value, DegreeLimit | Calibration):
            yield from _answers(value, f"{path}.")
        else:
            yield path, _answer(value)


def _answer(value: object) -> Answer:
    if isinstance(value, DegreeLimit):
        return _range(value)
    if isinstance(value, Calibration):
        return value.name
    if isinstance(value, tuple):
        return " + ".join(str(_answer(item)) for item in value) or "none"
    if isinstance(value, Enum):
        return str(value.value)
    return value if isinstance(value, str | int | float) else None


def _range(limit: DegreeLimit) -> str:
    least, most = (DegreeLimit.model_fields[name].default for name in ("min", "max"))
    if limit.min == limit.max:
        return str(limit.min)
    if limit.max == most:
        return "any" if limit.min == least else f"at least {limit.min}"
    return f"at most {limit.max}" if limit.min == least else f"{limit.min} to {limit.max}"
