"""Framework prices: the best plan of each framework, beside one that was made without it."""

from __future__ import annotations

from typing import Literal

from planner.schema.document import Document, Name, Part
from planner.schema.job import Framework, Stack
from planner.schema.plan import Amount, Certificate
from planner.schema.strategy import Strategy


class FrameworkPrice(Part):
    """The plan that a framework's own configuration can say, or why there is none.

    It is the simplest within the job's tolerance of the fastest, as any plan is.

    `slower_ratio` is its step over the compared plan's, less 1. `refused`: the framework trains
    nothing like the job; `infeasible`: nothing of its fits, which is proven; `out_of_time`: nothing
    was found in the time given.
    """

    framework: Framework
    stack: Stack
    status: Literal["found", "refused", "infeasible", "out_of_time"]
    reason: str | None = None
    strategy: Strategy | None = None
    description: str | None = None
    step_seconds: Amount | None = None
    slower_ratio: float | None = None
    certificate: Certificate | None = None


class FrameworkPrices(Document):
    """The prices of all frameworks for one plan, whose step they are compared with."""

    plan: Name
    description: str
    stack: Stack
    step_seconds: Amount
    prices: tuple[FrameworkPrice, ...]
    planner_version: str
