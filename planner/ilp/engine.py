"""Engine: what solving one configuration may take, and what it says.

Effort: the work that an engine may still do, as a count, and the user's limit of time.

What takes time is counted where it is done (sets of layers, cells of dynamic programs), in units
of about a microsecond of one core. Counts are the same on every machine and under any load, and so
are the answers. The deadline is the job's own limit: past it everything ends, and what is known by
then is the answer.

Outcome: what an engine says of one configuration after a turn.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from planner.ilp.instance import Assignment


class TooManyError(Exception):
    """More to look at than is worth it, or than the effort allows."""


@dataclass(slots=True, kw_only=True)
class Effort:
    """At most so many units of work, and nothing past the deadline (of `time.perf_counter`)."""

    most: float = float("inf")
    deadline: float = float("inf")
    spent: float = 0.0

    def spend(self, units: float) -> None:
        """Count some work."""
        self.spent += units

    @property
    def is_over(self) -> bool:
        """Return whether nothing may be done any more."""
        return self.spent >= self.most or time.perf_counter() > self.deadline

    def check(self) -> None:
        """Raise TooManyError where nothing may be done any more."""
        if self.is_over:
            raise TooManyError

    def part(self, most: float) -> Effort:
        """Return an effort of its own for some of the work, with the same deadline."""
        return Effort(most=most, deadline=self.deadline)


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
