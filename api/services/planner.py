"""The planner as the service sees it: a handful of functions, which tests may replace by others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from planner import planning
from planner.hardware import device_names
from planner.importers.models import model_names
from planner.requests.resolution import resolved_cluster, resolved_model, resolved_request
from planner.schema.job import Job
from planner.schema.plan import Estimate, Infeasible, Plan, ResolvedCluster, ResolvedModel
from planner.schema.progress import Progress
from planner.schema.strategy import Strategy
from planner.schema.tuning import Tuning, TuningBudget
from planner.tuning.decision import Decision, decide, new_tuning


class PlanFunction(Protocol):
    """Solves; runs in a process of its own, so it must be a module's own function."""

    def __call__(
        self,
        model: ResolvedModel,
        cluster: ResolvedCluster,
        job: Job,
        *,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Plan | Infeasible:
        """Return the best plan, or why there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """What the service asks of the planner."""

    resolved_model: Callable[[str | Mapping[str, Any]], ResolvedModel]
    resolved_cluster: Callable[[str | Mapping[str, Any]], ResolvedCluster]
    request_id: Callable[[ResolvedModel, ResolvedCluster, Job], str]
    plan: PlanFunction
    estimate: Callable[[ResolvedModel, ResolvedCluster, Job, Strategy], Estimate]
    new_tuning: Callable[[ResolvedModel, ResolvedCluster, Job, TuningBudget], Tuning]
    decide: Callable[[Tuning], Decision]
    model_names: Callable[[], tuple[str, ...]]
    device_names: Callable[[], tuple[str, ...]]


def the_planner() -> Planner:
    """Return the real one."""
    return Planner(
        resolved_model=resolved_model,
        resolved_cluster=resolved_cluster,
        request_id=_request_id,
        plan=planning.plan,
        estimate=planning.estimate,
        new_tuning=new_tuning,
        decide=decide,
        model_names=model_names,
        device_names=device_names,
    )


def _request_id(model: ResolvedModel, cluster: ResolvedCluster, job: Job) -> str:
    return planning.request_id(resolved_request(model, cluster, job))
