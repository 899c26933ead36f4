"""Destinations: to which targets a plan can go, and what each would lose of it."""

from __future__ import annotations

from planner.errors import InputError
from planner.exporters.registry import TARGETS, export
from planner.schema.plan import Destination, Plan


def destinations(plan: Plan) -> tuple[Destination, ...]:
    """Return every target, with its losses or why it cannot run the plan."""
    return tuple(_destination(plan, target) for target in TARGETS)


def _destination(plan: Plan, target: str) -> Destination:
    try:
        return Destination(target=target, losses=export(plan, target).losses)
    except InputError as refused:
        return Destination(target=target, refusal=str(refused))
