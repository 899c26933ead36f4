"""Answers that are in the store before anybody looks, and how they get there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from api.db import Database
from api.migrate import upgrade
from api.repositories.plans import PlanRepository
from api.repositories.tunings import TuningRepository
from api.services.records import label, plan_row
from api.services.tuning_records import keep
from api.tables import TuningRow
from planner.schema.plan import (
    Alternative,
    Explanation,
    Infeasible,
    Interval,
    Plan,
    StepBreakdown,
)
from planner.schema.service import PlanLabels
from planner.schema.tuning import MeasuredCertificate, Tuning, TuningBudget, TuningTrial
from planner.units import GIB
from tests.builders import a_certificate, a_plan, a_prediction, a_stage_prediction, a_strategy
from tests.contract.api.solvers import an_infeasible

WARNING = "the network between nodes of h100-sxm5-80gb was assumed: 36.5 GB/s a device"
LABELS = PlanLabels(name="Third try", notes="For the March run.", tags=("march", "tried"))


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


def a_finished_tuning() -> Tuning:
    """Four trials: two measured, one out of memory, one that failed; all others are slower."""
    plan = a_proven_plan()
    measured = {
        "outcome": "measured",
        "run_id": "run-of-a-trial",
        "peak_memory_bytes": 63.5 * GIB,
    }
    trials = (
        a_trial(
            "TP 2, PP 2, DP 2",
            1.0,
            optimistic_seconds=0.7,
            step_seconds=(1.12, 1.1, 1.11),
            **measured,
        ),
        a_trial(
            "TP 4, DP 2",
            0.92,
            outcome="out_of_memory",
            reason="CUDA out of memory",
            optimistic_seconds=0.91,
        ),
        a_trial(
            "PP 4, DP 2",
            0.97,
            outcome="failed",
            reason="node 0: KeyError: 'labels'",
            optimistic_seconds=0.93,
        ),
        a_trial(
            "TP 2, DP 4", 1.05, optimistic_seconds=0.93, step_seconds=(1.02, 1.03, 1.02), **measured
        ),
    )
    return Tuning(
        model=plan.model,
        cluster=plan.cluster,
        job=plan.job,
        budget=TuningBudget(runs=4, minutes=90),
        trials=trials,
        certificate=MeasuredCertificate(
            ended_by="runs",
            best_trial=4,
            step_seconds=1.02,
            run_count=4,
            out_of_memory_count=1,
            failed_count=1,
            configurations_total=41_514,
            lower_bound_seconds=1.01,
            optimistic_seconds=0.9986,
            faster_ratio=0.021,
        ),
        planner_version="0.1.0",
    )


def a_trial(description: str, predicted: float, **changes: Any) -> TuningTrial:
    """A trial that was predicted to take so long a step, give or take a tenth."""
    fields: dict[str, Any] = {
        "strategy": a_strategy(),
        "description": description,
        "predicted": Interval(p10=0.9 * predicted, p50=predicted, p90=1.1 * predicted),
        "predicted_peak_bytes": 60.0 * GIB,
        "fits_probability": 0.97,
    }
    return TuningTrial(**{**fields, **changes})


def store(database_url: str, *answers: Plan | Infeasible) -> None:
    """Put answers into the database, the last one newest, and a tuning that has ended."""
    database = Database(database_url)
    upgrade(database)
    with database.writing() as session:
        for answer in answers:
            plans, row = (
                PlanRepository(session, "default"),
                plan_row(answer, request_digest=answer.id),
            )
            plans.add(row)
            if answer.id == "plan-third":
                label(row, LABELS)
                plans.tag(row.id, LABELS.tags)
        TuningRepository(session).add(a_tuning_row())
    database.close()


def a_tuning_row() -> TuningRow:
    """The row of that tuning, whose best plan is the proven one."""
    at = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    row = TuningRow(
        id="tuning-ended",
        project_id="default",
        state="succeeded",
        command="train",
        arguments="{}",
        begun_count=0,
        best_plan_id="plan-proven",
        created_at=at,
        finished_at=at + timedelta(hours=1),
    )
    keep(row, a_finished_tuning())
    return row


def the_seeds() -> tuple[Plan | Infeasible, ...]:
    """Return what the tests find."""
    return (
        a_proven_plan(),
        a_wide_plan(),
        a_plan(id="plan-third", warnings=(WARNING,)),
        an_infeasible(id="plan-infeasible", warnings=(WARNING,)),
    )
