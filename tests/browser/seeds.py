"""Answers that are in the store before anybody looks, and how they get there."""

from __future__ import annotations

from api.db import Database
from api.migrate import upgrade
from api.repositories.plans import PlanRepository
from api.services.records import plan_row
from planner.schema.plan import (
    Alternative,
    Explanation,
    Infeasible,
    Interval,
    Plan,
    StepBreakdown,
)
from planner.units import GIB
from tests.builders import a_certificate, a_plan, a_prediction, a_stage_prediction, a_strategy
from tests.contract.api.solvers import an_infeasible


def a_proven_plan() -> Plan:
    """Two stages, 1 s a step, with a runner-up and an assumption."""
    return a_plan(
        id="plan-proven",
        explanation=Explanation(
            summary="Tensor parallelism stays inside the node.",
            binding_constraints=("device memory of stage 1: 75 GiB of 76 GiB",),
            runners_up=(Alternative(description="DP 8", step_seconds=1.25, is_lower_bound=True),),
            assumptions=("sequence_length 128 was assumed",),
        ),
    )


def a_wide_plan() -> Plan:
    """One stage, tensor parallel 4: 0.8 s a step, within 2% of the bound, almost full."""
    parts = {**dict.fromkeys(StepBreakdown.model_fields, 0.0), "compute": 0.6}
    return a_plan(
        id="plan-wide",
        strategy=a_strategy(pipeline_parallel_degree=1, tensor_parallel_degree=4),
        prediction=a_prediction(
            step_seconds=Interval(p10=0.7, p50=0.8, p90=1.0),
            breakdown_seconds=StepBreakdown(**{**parts, "tensor_parallel": 0.2}),
            stages=(a_stage_prediction(0, peak_memory_bytes=75.0 * GIB),),
        ),
        certificate=a_certificate(status="feasible", gap_ratio=0.02, lower_bound_seconds=0.784),
    )


def store(database_url: str, *answers: Plan | Infeasible) -> None:
    """Put answers into the database, the last one newest."""
    database = Database(database_url)
    upgrade(database)
    with database.writing() as session:
        for answer in answers:
            PlanRepository(session, "default").add(plan_row(answer, request_digest=answer.id))
    database.close()


def the_seeds() -> tuple[Plan | Infeasible, ...]:
    """Return what the tests find."""
    return (
        a_proven_plan(),
        a_wide_plan(),
        a_plan(id="plan-third"),
        an_infeasible(id="plan-infeasible"),
    )
