"""Planned: a plan that is asked about, and the whole cluster that it was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.errors import InputError
from planner.proof.verify import objective_value
from planner.requests.resolution import Request, resolved_cluster, resolved_request
from planner.schema.cluster import Cluster
from planner.schema.job import Objective
from planner.schema.plan import Plan, Prediction, ResolvedCluster
from planner.schema.strategy import Strategy

_ON_A_PART = (Objective.COST, Objective.DEVICES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The plan that objections are held against.

    `request` is on the devices that the plan uses; `whole`, where that is more, on all that were
    asked about. `fastest` is the plan that is best at the objective, where the plan is the simplest
    within a tolerance of it; `is_proven` says that no plan is better.
    """

    request: Request
    strategy: Strategy
    prediction: Prediction
    whole: Request | None = None
    fastest: Strategy | None = None
    fastest_seconds: float | None = None
    is_proven: bool = False

    @property
    def asked(self) -> Request:
        """Return the request on the whole cluster."""
        return self.request if self.whole is None else self.whole

    @property
    def step_seconds(self) -> float:
        """Return the step that is expected."""
        return self.prediction.step_seconds.p50

    @property
    def best_step_seconds(self) -> float:
        """Return the step of the fastest plan."""
        return self.step_seconds if self.fastest_seconds is None else self.fastest_seconds

    @property
    def best_value(self) -> float:
        """Return what the fastest plan has of the objective; cost goes by time on its devices."""
        if self.objective is Objective.DEVICES:
            return self.value
        return self.value * self.best_step_seconds / self.step_seconds

    @property
    def objective(self) -> Objective:
        """Return what the plan was asked to be best at."""
        return self.request.job.resolved.objective

    @property
    def value(self) -> float:
        """Return what the plan has of its objective."""
        return objective_value(self.objective, self.prediction, self.request.cluster.resolved)


def whole_request(plan: Plan) -> Request | None:
    """Return the plan's request on the cluster that was given, `None` where the plan uses it all.

    A document made where this planner cannot read the cluster again has its own part alone.
    """
    if plan.job.resolved.objective not in _ON_A_PART:
        return None
    whole = _given_cluster(plan.cluster)
    if whole is None or not _is_part(plan.cluster.resolved, whole.resolved):
        return None
    return resolved_request(plan.model, whole, plan.job.resolved)


def _given_cluster(cluster: ResolvedCluster) -> ResolvedCluster | None:
    given = cluster.given
    if not isinstance(given, str | Mapping):
        return None
    try:
        return resolved_cluster(given)
    except InputError:
        return None


def _is_part(part: Cluster, whole: Cluster) -> bool:
    """Return whether `part` has fewer devices, all of groups that the whole cluster has."""
    groups = {group.name: group for group in whole.node_groups}
    return part.device_count < whole.device_count and all(
        group.name in groups
        and group.device == groups[group.name].device
        and group.node_count <= groups[group.name].node_count
        and group.devices_per_node <= groups[group.name].devices_per_node
        for group in part.node_groups
    )
