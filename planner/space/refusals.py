"""Refusals: why configurations are not in the searched space, and how many each keeps out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from planner.schema.job import DegreeLimit, Limits

_SHOWN_DEGREES = 12


@dataclass(frozen=True, slots=True)
class Outside:
    """A degree that is possible and that the job's limit of this name leaves out."""

    name: str
    degree: int


Refusal = str | Outside


def worded(refused: Mapping[Refusal, int], limits: Limits) -> dict[str, int]:
    """Return each reason in words with its count, and for a limit what would be possible."""
    counts: Counter[str] = Counter()
    possible: dict[str, set[int]] = {}
    for refusal, count in refused.items():
        if isinstance(refusal, Outside):
            possible.setdefault(refusal.name, set()).add(refusal.degree)
            counts[refusal.name] += count
    rules = {reason: count for reason, count in refused.items() if isinstance(reason, str)}
    for name, degrees in possible.items():
        rules[_outside(name, getattr(limits, name), degrees)] = counts[name]
    return rules


def _outside(name: str, limit: DegreeLimit, degrees: set[int]) -> str:
    shown = [str(degree) for degree in sorted(degrees)[:_SHOWN_DEGREES]]
    more = ", ..." if len(degrees) > _SHOWN_DEGREES else ""
    return (
        f"job.limits.{name} is {_bounds(limit)}, which rules these out; model and devices allow "
        f"{', '.join(shown)}{more}"
    )


def _bounds(limit: DegreeLimit) -> str:
    """Return the interval in words: `4`, `4 or more`, `at most 4`, `2 to 4`."""
    if limit.min == limit.max:
        return str(limit.min)
    if limit.max == DegreeLimit().max:
        return f"{limit.min} or more"
    return f"at most {limit.max}" if limit.min == 1 else f"{limit.min} to {limit.max}"
