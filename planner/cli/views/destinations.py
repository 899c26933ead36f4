"""Destinations: to which targets a plan can go, as a person reads it in a line or two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.schema.job import Framework
from planner.schema.plan import Destination


def destination_lines(destinations: Sequence[Destination]) -> Iterator[str]:
    """Yield where the plan can go and with how many losses, then where not and what to do."""
    open_to = [place for place in destinations if place.refusal is None]
    if open_to:
        yield f"  exports to {', '.join(map(_with_losses, open_to))}"
    closed = [place.target for place in destinations if place.refusal is not None]
    if closed:
        yield f"  not to {', '.join(closed)}{_offer(closed)}"


def _with_losses(place: Destination) -> str:
    count = len(place.losses)
    if not count:
        return place.target
    return f"{place.target} ({count} {'loss' if count == 1 else 'losses'})"


def _offer(closed: Sequence[str]) -> str:
    """Return which plans to make for those that have one of their own."""
    frameworks = [name.value for name in Framework if name.value in closed]
    if not frameworks:
        return ""
    again = f"plan again with --framework {' or '.join(frameworks)}"
    return f": {again}, which `meshwright compare-frameworks` prices"
