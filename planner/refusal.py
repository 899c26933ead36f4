"""Refusal: why a search that was held to some degrees found nothing."""

from __future__ import annotations

from collections.abc import Collection

from planner.ilp.result import NotFound
from planner.schema.reasons import Excess


def rules(answer: NotFound, *, fixed: Collection[str]) -> tuple[str, ...]:
    """Return the rules that left no configuration, those that refused most first.

    That other degrees than the fixed ones were not looked at is no reason and is left out.
    """
    by_fixing = tuple(f"job.limits.{name} is" for name in fixed)
    ranked = sorted(answer.refused, key=lambda rule: (-answer.refused[rule], rule))
    kept = tuple(rule for rule in ranked if not rule.startswith(by_fixing))
    return kept or ("no legal configuration has them together on this number of devices",)


def excesses(answer: NotFound) -> tuple[Excess, ...]:
    """Return what the leanest configurations need beyond what there is, least first."""
    return tuple(
        Excess(
            stage=None,
            resource="device_memory" if one.exceeds_device else "host_memory",
            required_bytes=one.required_bytes,
            capacity_bytes=one.capacity_bytes,
            excess_bytes=max(one.required_bytes - one.capacity_bytes, 0.0),
        )
        for one in answer.shortfalls
    )


def missing_bytes(answer: NotFound) -> float | None:
    """Return how much device memory the leanest configuration lacks; `None` if it lacks none."""
    lacking = [one.excess_bytes for one in excesses(answer) if one.resource == "device_memory"]
    return min(lacking, default=None)
