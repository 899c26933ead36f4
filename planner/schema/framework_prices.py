"""Framework prices: the best plan of each framework, beside one that was made without it."""

from __future__ import annotations

from typing import Literal

from planner.schema.document import Document, Name, Part
from planner.schema.job import Framework, Stack
from planner.schema.plan import Amount, Certificate
from planner.schema.strategy import Strategy

_ABSENCES = {
    "refused": "cannot run the job",
    "infeasible": "nothing that it can say is likely enough to fit",
    "out_of_time": "nothing found in time",
}


class FrameworkPrice(Part):
    """The plan that a framework's own configuration can say, or why there is none.

    It is the simplest within the job's tolerance of the fastest, as any plan is.

    `slower_ratio` is its step over the compared plan's, less 1. It has two causes, whose ratios
    multiply: `restriction_ratio` is what the framework cannot say, the step of its plan under the
    compared plan's stack over that plan's, less 1; `stack_ratio` is what its program's kernels,
    collectives and memory make of the same plan, its step under its own stack over that under the
    other, less 1. Its plan is the best of its own stack: under the other there may be a better one
    that it can say, so `restriction_ratio` is at most too high.

    `refused`: the framework trains nothing like the job; `infeasible`: nothing of its fits, which
    is proven; `out_of_time`: nothing was found in the time given.
    """

    framework: Framework
    stack: Stack
    status: Literal["found", "refused", "infeasible", "out_of_time"]
    reason: str | None = None
    strategy: Strategy | None = None
    description: str | None = None
    step_seconds: Amount | None = None
    slower_ratio: float | None = None
    restriction_ratio: float | None = None
    stack_ratio: float | None = None
    certificate: Certificate | None = None

    @property
    def absence(self) -> str:
        """Return why there is no plan, in words; nothing where there is one."""
        return _ABSENCES.get(self.status, "")


class FrameworkPrices(Document):
    """The prices of all frameworks for one plan, whose step they are compared with."""

    plan: Name
    description: str
    stack: Stack
    step_seconds: Amount
    prices: tuple[FrameworkPrice, ...]
    planner_version: str
