"""Outcome: what an engine says of one configuration after a turn."""

from __future__ import annotations

from dataclasses import dataclass

from planner.ilp.instance import Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A bound and a plan.

    No plan of the configuration, the one that is returned included, is below `bound_seconds`, which
    is the limit at most. The plan is the best that this turn has found below the limit. Where the
    engine `is_done` no other is below the bound's own plan or the limit; where it `is_stuck`
    another turn of it says no more.
    """

    bound_seconds: float
    assignment: Assignment | None
    is_done: bool
    is_stuck: bool
