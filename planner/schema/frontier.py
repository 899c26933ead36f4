"""Frontier: the plans among which step, memory and cost have to be traded."""

from __future__ import annotations

from typing import Literal

from planner.schema.document import Document, Part, PositiveBytes, PositiveCount
from planner.schema.plan import (
    Amount,
    Certificate,
    Infeasible,
    ResolvedCluster,
    ResolvedJob,
    ResolvedModel,
)
from planner.schema.strategy import Strategy


class NodeShare(Part):
    """The part of a node group that a plan uses."""

    name: str
    device: str
    node_count: PositiveCount
    devices_per_node: PositiveCount


class FrontierPoint(Part):
    """A plan that no other point beats in step, memory and cost at once.

    No plan on these nodes that keeps every device under `memory_cap_bytes` (runtime and headroom
    included, `None`: what the devices have) is faster: the certificate says how sure that is, and
    what of it was proven of closed forms. `simulated_step_seconds` is `step_seconds` with the
    pipeline run event by event, `None` where it is too long for that.
    """

    description: str
    node_groups: tuple[NodeShare, ...]
    device_count: PositiveCount
    step_seconds: Amount
    simulated_step_seconds: Amount | None = None
    peak_memory_bytes: Amount
    cost_per_million_tokens: Amount | None
    tokens_per_second: Amount
    memory_cap_bytes: PositiveBytes | None
    strategy: Strategy
    certificate: Certificate


class AlternativePlan(Part):
    """The fastest plan of its tensor, pipeline, context and expert degrees; `rank` 1 is the best.

    Or, among `other_choices`, the fastest of the best plan's degrees without one of its
    choices. `differs` says in what it differs from the best plan, a choice each.
    `slower_ratio` is how much longer its step is than the best plan's; `simulated_step_seconds` is
    the step with its pipeline run event by event, `None` where it is too long for that. Of its
    degrees the plan has the least closed form; it is `proven` if no other plan has one below its
    step.
    """

    rank: PositiveCount
    description: str
    step_seconds: Amount
    simulated_step_seconds: Amount | None = None
    slower_ratio: Amount
    peak_memory_bytes: Amount
    cost_per_million_tokens: Amount | None
    strategy: Strategy
    proven: bool
    differs: tuple[str, ...] = ()


class SkippedNodes(Part):
    """Nodes of the cluster for which there is no point, and why."""

    node_groups: tuple[NodeShare, ...]
    device_count: PositiveCount
    memory_cap_bytes: PositiveBytes | None
    reason: Literal["infeasible", "out_of_time"]


class Frontier(Document):
    """The Pareto front of step seconds, peak memory and cost, fastest first.

    `status` is `partial` where time ran out before every cap and part of the cluster was solved. A
    `complete` one is a sample too: between its caps there may be other plans. No plan on the whole
    cluster has a peak under `least_peak_bound_bytes`, `None` where that was not looked into.
    `infeasible` says what binds and what would help where nothing fits.
    """

    status: Literal["complete", "partial", "infeasible"]
    model: ResolvedModel
    cluster: ResolvedCluster
    job: ResolvedJob
    points: tuple[FrontierPoint, ...]
    alternatives: tuple[AlternativePlan, ...]
    other_choices: tuple[AlternativePlan, ...] = ()
    skipped: tuple[SkippedNodes, ...]
    search_count: int
    dominated_count: int
    least_peak_bound_bytes: Amount | None = None
    infeasible: Infeasible | None = None
    planner_version: str
