"""Plans to export, with strategies written out."""

from __future__ import annotations

from functools import cache
from typing import Any

from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import read_model
from planner.requests.resolution import cluster_document, model_document, resolved_request
from planner.schema.job import Job, Precision
from planner.schema.plan import (
    Certificate,
    Explanation,
    Interval,
    Plan,
    Prediction,
    ResolvedModel,
    StepBreakdown,
)
from planner.schema.strategy import Strategy


@cache
def resolved_model(name: str) -> ResolvedModel:
    """The document of a model that ships."""
    return model_document(*read_model(name))


def plan_of(
    strategy: Strategy,
    *,
    model: str = "llama-3-8b",
    cluster: str = "8xh100-sxm5-80gb",
    batch: int = 64,
    sequence: int = 8192,
    precision: Precision = Precision.BF16,
    **fields: Any,
) -> Plan:
    """A plan with this strategy, spelled out; its prediction is made up, exporters read none."""
    graph = resolved_model(model)
    job = Job(global_batch_size=batch, sequence_length=sequence, precision=precision, **fields)
    given = cluster_from_short_form(cluster)
    request = resolved_request(graph, cluster_document(cluster, given), job)
    parts = StepBreakdown.model_validate(dict.fromkeys(StepBreakdown.model_fields, 0.0))
    return Plan(
        id="plan-0",
        model=graph,
        cluster=request.cluster,
        job=request.job,
        strategy=strategy.resolved(block_count=graph.resolved.block_count, global_batch_size=batch),
        prediction=Prediction(
            step_seconds=Interval(p10=1.0, p50=1.0, p90=1.0),
            tokens_per_second_per_device=1.0,
            model_flop_utilization=0.5,
            breakdown_seconds=parts,
            stages=(),
            cost_per_million_tokens=None,
            fits=True,
            fits_probability=1.0,
        ),
        certificate=Certificate(
            status="optimal",
            lower_bound_seconds=1.0,
            gap_ratio=0.0,
            configurations_total=1,
            configurations_pruned=0,
            milp_count=0,
            solver="highs",
            solve_seconds=0.0,
        ),
        explanation=Explanation(summary="written by a test"),
        planner_version="0",
    )
