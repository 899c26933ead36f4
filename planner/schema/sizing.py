"""Sizing: which devices, and how many, train so many tokens in time and within a budget."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from planner.schema.document import Document, Name, Part, PositiveCount
from planner.schema.plan import Amount, Certificate, ResolvedJob, ResolvedModel
from planner.schema.strategy import Strategy

Bind = Literal["deadline", "budget", "memory", "legality", "time_limit"]
LimitedBy = Literal["deadline", "budget", "memory", "legality"]
Verdict = Literal["meets", "misses", "cannot_run", "out_of_time"]


class SizingWish(Document):
    """What is asked for: so many tokens, in so many days, for so much, on devices of these kinds.

    `goal`: `fewest` devices, or the `cheapest` run; the other breaks ties. Nodes are as each device
    is sold, but where `devices_per_node` says otherwise.
    """

    tokens: Annotated[float, Field(ge=1, le=1e18)]
    days: Annotated[float, Field(gt=0, le=36500)]
    budget: Annotated[float, Field(gt=0, le=1e15)] | None = None
    goal: Literal["fewest", "cheapest"] = "fewest"
    devices: Annotated[tuple[Name, ...], Field(min_length=1, max_length=16)]
    devices_per_node: Annotated[int, Field(ge=1, le=1024)] | None = None
    max_devices: Annotated[int, Field(ge=1, le=2**17)] = 16384


class SizingTrial(Part):
    """One device count that was solved, or for which the time ran out.

    `misses` means that a search has proven that no plan on these devices is at or under
    `cutoff_seconds` a step, which deadline or budget (`limited_by`) ask for; when the cheapest run
    is wanted, the budget is what the cheapest so far costs. `days`, `cost` and `certificate` are
    there where a fastest plan is known.
    """

    device: Name
    node_count: PositiveCount
    devices_per_node: PositiveCount
    device_count: PositiveCount
    verdict: Verdict
    limited_by: LimitedBy | None = None
    cutoff_seconds: Amount | None = None
    step_seconds: Amount | None = None
    days: Amount | None = None
    cost: Amount | None = None
    certificate: Certificate | None = None
    reason: str | None = None


class SizedPlan(Part):
    """The devices that were chosen, and the fastest plan on them."""

    device: Name
    node_count: PositiveCount
    devices_per_node: PositiveCount
    device_count: PositiveCount
    description: str
    step_seconds: Amount
    step_count: Annotated[int, Field(ge=1)]
    days: Amount
    cost: Amount
    peak_memory_bytes: Amount
    model_flop_utilization: Amount
    strategy: Strategy
    certificate: Certificate


class DeviceRange(Part):
    """Which device counts of one kind were tried, and from where on.

    Below `least_device_count` even the devices' peak rate misses the deadline, so no smaller count
    was tried.
    """

    device: Name
    least_device_count: PositiveCount | None
    tried: tuple[int, ...]
    untried: tuple[int, ...]


class Sizing(Document):
    """The fewest or cheapest devices among the counts tried.

    `proven`: every smaller (for `cheapest`, every other) count among the candidates was solved and
    found to miss. `next_smaller` is the next smaller count of the chosen kind with its own fastest
    plan. Where nothing does, `status` is `none`, `binding` says what stands in the way and
    `nearest_miss` is what comes closest.
    """

    status: Literal["found", "none"]
    wish: SizingWish
    model: ResolvedModel
    job: ResolvedJob
    answer: SizedPlan | None
    proven: bool
    next_smaller: SizingTrial | None
    nearest_miss: SizingTrial | None
    binding: Bind | None
    ranges: tuple[DeviceRange, ...]
    trials: tuple[SizingTrial, ...]
    search_count: int
    planner_version: str
