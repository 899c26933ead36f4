"""Refusals: why configurations are not in the searched space, and how many each keeps out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from planner.schema.job import DegreeLimit, Job

_SHOWN_DEGREES = 12


@dataclass(frozen=True, slots=True)
class Outside:
    """A degree that is possible and that the job's limit of this name leaves out."""

    name: str
    degree: int


@dataclass(frozen=True, slots=True)
class Indivisible:
    """A data-parallel degree that does not divide the batch."""

    data_parallel_degree: int


Refusal = str | Outside | Indivisible


def worded(refused: Mapping[Refusal, int], job: Job) -> dict[str, int]:
    """Return each reason in words with its count, and for a limit what would be possible."""
    rules: Counter[str] = Counter()
    possible: dict[str, set[int]] = {}
    for refusal in refused:
        if isinstance(refusal, Outside):
            possible.setdefault(refusal.name, set()).add(refusal.degree)
        elif isinstance(refusal, Indivisible):
            possible.setdefault("", set()).add(refusal.data_parallel_degree)
    for refusal, count in refused.items():
        if isinstance(refusal, Outside):
            limit: DegreeLimit = getattr(job.limits, refusal.name)
            rules[_outside(refusal.name, limit, possible[refusal.name])] += count
        elif isinstance(refusal, Indivisible):
            rules[_indivisible(job.global_batch_size, possible[""])] += count
        else:
            rules[refusal] += count
    return dict(rules)


def _indivisible(batch: int | None, degrees: set[int]) -> str:
    return (
        f"job.global_batch_size {batch} is not a multiple of the data-parallel degree; a multiple "
        f"of one of {_listed(degrees)} would do"
    )


def _outside(name: str, limit: DegreeLimit, degrees: set[int]) -> str:
    return (
        f"job.limits.{name} is {_bounds(limit)}, which rules these out; model and devices allow "
        f"{_listed(degrees)}"
    )


def _listed(degrees: set[int]) -> str:
    shown = ", ".join(str(degree) for degree in sorted(degrees)[:_SHOWN_DEGREES])
    return f"{shown}, ..." if len(degrees) > _SHOWN_DEGREES else shown


def _bounds(limit: DegreeLimit) -> str:
    """Return the interval in words: `4`, `4 or more`, `at most 4`, `2 to 4`."""
    if limit.min == limit.max:
        return str(limit.min)
    if limit.max == DegreeLimit().max:
        return f"{limit.min} or more"
    return f"at most {limit.max}" if limit.min == 1 else f"{limit.min} to {limit.max}"
