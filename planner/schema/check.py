"""Check: whether a plan or strategy is legal, fits, and is not slower than it was."""

from __future__ import annotations

from typing import Literal

from planner.schema.document import Document, Part
from planner.schema.plan import Prediction, ResolvedCluster, ResolvedJob, ResolvedModel
from planner.schema.reasons import Cause, Excess
from planner.schema.strategy import Strategy

CheckName = Literal["legal", "fits", "not_slower"]
CheckOutcome = Literal["passed", "failed", "skipped"]


class CheckResult(Part):
    """One check and what it found; one is skipped where an earlier one has failed."""

    name: CheckName
    outcome: CheckOutcome
    detail: str


class CheckReport(Document):
    """The contract test of a plan or strategy against a model and a cluster.

    `slowdown_ratio` is tokens per second of the baseline / those of the strategy - 1, both priced
    by this version of the cost model, so that a baseline of an older version is not held against
    the strategy.
    """

    status: Literal["passed", "failed"]
    source: str
    model: ResolvedModel
    cluster: ResolvedCluster
    job: ResolvedJob
    strategy: Strategy
    results: tuple[CheckResult, ...]
    rules: tuple[str, ...]
    excesses: tuple[Excess, ...]
    prediction: Prediction | None
    baseline_id: str | None
    baseline_step_seconds: float | None
    slowdown_ratio: float | None
    max_slowdown_ratio: float
    causes: tuple[Cause, ...]
    planner_version: str
