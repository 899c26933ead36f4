"""Problem: what a search is asked."""

from __future__ import annotations

from dataclasses import dataclass

from planner.hardware import ClusterHardware
from planner.schema.job import Job
from planner.schema.model import ModelGraph
from planner.workload.layer import ModelWorkload


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A resolved job on a cluster, with the model's workload."""

    graph: ModelGraph
    workload: ModelWorkload
    hardware: ClusterHardware
    job: Job
