"""Reasons: why a plan is as it is, why not another, and what more memory would be worth."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from planner.schema.document import Document, Name, Part, Ratio
from planner.schema.job import Objective
from planner.schema.plan import Amount, Certificate, MemoryBreakdown
from planner.schema.strategy import Strategy

ObjectionVerdict = Literal[
    "illegal",
    "does_not_fit",
    "too_tight",
    "slower",
    "as_fast",
    "faster",
    "worse",
    "better",
    "out_of_time",
]
Resource = Literal["device_memory", "host_memory"]
CellStatus = Literal["solved", "illegal", "does_not_fit", "out_of_time"]


class ShadowPrice(Part):
    """What more memory would save, found by planning again with it for the same objective.

    `saved_value` = the plan's `objective_value` - `objective_value_with_more`, in the objective's
    unit; it is `proven` where both are optimal. `saved_seconds` is the same of the plans' steps.
    `added_bytes` is on every device of the kind (of its host, for `host_memory`). A `reason` says
    why more changes nothing, where it is known without planning again.
    """

    resource: Resource
    device: Name
    added_bytes: Amount
    step_seconds: Amount
    step_seconds_with_more: Amount | None
    saved_seconds: float | None
    proven: bool
    objective_value_with_more: Amount | None = None
    saved_value: float | None = None
    reason: str | None = None


class Rival(Part):
    """The best plan of other tensor, pipeline, context or expert degrees, and how far behind.

    Best is the objective's, on the devices that the plan uses; `more_value` is how much more of it
    the runner-up has.
    """

    description: str
    step_seconds: Amount
    slower_seconds: float
    slower_ratio: float
    proven: bool
    strategy: Strategy
    objective_value: Amount | None = None
    more_value: float | None = None
    more_ratio: float | None = None


class Safety(Part):
    """The best plan that is more likely than not to fit, and what asking for a higher chance costs.

    `fits_probability` is its own chance, `asked_probability` the job's. Best is held against best:
    `asked_description` and `asked_step_seconds` are of the best plan with the chance that was asked
    for, of which the plan itself may be a simpler one. `cost_seconds` is how much longer that one
    takes, `cost_value` the same of the objective, in its unit, and `cost_ratio` the latter over
    what this plan has of it. It is `proven` where both plans are. Without a `strategy` none was
    found in time.
    """

    asked_probability: Ratio
    proven: bool
    strategy: Strategy | None = None
    description: str | None = None
    fits_probability: Ratio | None = None
    step_seconds: Amount | None = None
    asked_description: str | None = None
    asked_step_seconds: Amount | None = None
    cost_seconds: float | None = None
    cost_value: float | None = None
    cost_ratio: float | None = None


class Excess(Part):
    """Bytes that do not fit: of one stage, or (`stage` is `None`) of the leanest plan there is."""

    stage: int | None
    resource: Resource
    required_bytes: Amount
    capacity_bytes: Amount
    excess_bytes: Amount
    memory_bytes: MemoryBreakdown | None = None


class Cause(Part):
    """One part of the step in the plan and in the other strategy; the largest difference first.

    The last, named `other`, is of all parts that are not named: they add up to the steps.
    """

    name: str
    plan_seconds: Amount
    other_seconds: Amount
    difference_seconds: float


class Objection(Part):
    """The answer to "why not X?", for a strategy or for fixed degrees.

    For fixed degrees `strategy` is the best plan that has them, and `certificate` its proof, on the
    cluster that was asked about. `worse` and `better` are of an objective other than the step;
    `more_value` is how much more of it X has than the plan.
    `outside_limits` names limits of the job that X does not keep.
    """

    asked: str
    verdict: ObjectionVerdict
    answer: str
    rules: tuple[str, ...] = ()
    excesses: tuple[Excess, ...] = ()
    outside_limits: tuple[str, ...] = ()
    step_seconds: Amount | None = None
    slower_seconds: float | None = None
    slower_ratio: float | None = None
    causes: tuple[Cause, ...] = ()
    strategy: Strategy | None = None
    certificate: Certificate | None = None
    device_count: int | None = None
    objective_value: Amount | None = None
    more_value: float | None = None
    more_ratio: float | None = None


class HeatmapCell(Part):
    """The best plan with these two degrees, or why there is none.

    Best is the objective's; `more_ratio` is how much more of it there is than in the plan.
    """

    row: int
    column: int
    status: CellStatus
    step_seconds: Amount | None = None
    slower_ratio: float | None = None
    proven: bool = False
    description: str | None = None
    reason: str | None = None
    missing_bytes: Amount | None = None
    objective_value: Amount | None = None
    more_ratio: float | None = None


class Heatmap(Part):
    """The best plan of every pair of two degrees; `cells` go row by row."""

    row_field: Name
    column_field: Name
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    cells: tuple[HeatmapCell, ...]
    objective: Objective = Objective.THROUGHPUT


class Reasons(Document):
    """Why this plan: what binds and what it costs, who came second, and answers to objections.

    `objective_value` is what the plan has of what it was asked to be best at: seconds a step, cost
    per million tokens, bytes on the fullest device, or devices. The plan uses `device_count` of the
    `cluster_device_count` devices that were asked about. `safety` is `null` where no chance of
    fitting above one half is asked for.
    """

    plan_id: str
    summary: str
    step_seconds: Amount
    binding_constraints: tuple[str, ...]
    shadow_prices: tuple[ShadowPrice, ...]
    runner_up: Rival | None
    objections: tuple[Objection, ...]
    heatmap: Heatmap | None
    search_count: Annotated[int, Field(ge=0)]
    planner_version: str
    objective: Objective = Objective.THROUGHPUT
    objective_value: Amount | None = None
    device_count: int | None = None
    cluster_device_count: int | None = None
    safety: Safety | None = None
