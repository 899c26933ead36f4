"""Reasons: everything that explains a finished plan, each figure found by planning again."""

from __future__ import annotations

from collections.abc import Sequence

from planner.answers.heatmap import heatmap
from planner.answers.runner_up import runner_up
from planner.answers.safety import safety
from planner.answers.shadow_price import shadow_prices
from planner.cost.step import predict_simulated
from planner.proof.verify import verify
from planner.requests.inquiry import Inquiry
from planner.requests.planned import Planned, whole_request
from planner.requests.resolution import resolved_request
from planner.schema.plan import Plan
from planner.schema.reasons import Objection, Reasons
from planner.version import planner_version


def planned_of(plan: Plan) -> Planned:
    """Return the plan with its request resolved again, once it is known to hold.

    Raises:
        VerificationError: if the plan does not survive its own recomputation.
        InputError: if the plan's device has no profile here.
    """
    verify(plan)
    request = resolved_request(plan.model, plan.cluster, plan.job.resolved)
    simplicity = plan.certificate.simplicity
    job = request.job.resolved
    priced = [
        predict_simulated(request.workload, request.hardware, job, strategy)
        for strategy in (plan.strategy, *(() if simplicity is None else (simplicity.fastest,)))
    ]
    return Planned(
        request=request,
        strategy=plan.strategy,
        prediction=priced[0],
        whole=whole_request(plan),
        fastest=None if simplicity is None else simplicity.fastest,
        fastest_seconds=None if simplicity is None else priced[1].step_seconds.p50,
        is_proven=plan.certificate.status == "optimal",
    )


def reasons(
    plan: Plan,
    *,
    inquiry: Inquiry,
    objections: Sequence[Objection] = (),
    axes: tuple[str, str] | None = None,
) -> Reasons:
    """Return why the plan is as it is; with `axes`, the heatmap of these two degrees as well.

    Raises:
        InputError: if an axis is no degree.
        SolverError: if the solver fails.
        VerificationError: if the plan does not survive its own recomputation.
    """
    planned = planned_of(plan)
    inquiry.tell("runner-up", 0, 4)
    rival = runner_up(planned, inquiry=inquiry)
    inquiry.tell("shadow prices", 1, 4)
    prices = tuple(
        shadow_prices(
            planned,
            plan_is_proven=planned.is_proven,
            inquiry=inquiry,
        )
    )
    inquiry.tell("safety", 2, 4)
    even = safety(planned, inquiry=inquiry)
    inquiry.tell("heatmap", 3, 4)
    cells = None
    if axes is not None:
        cells = heatmap(
            planned.asked,
            best_seconds=planned.step_seconds,
            planned=planned,
            inquiry=inquiry,
            row_field=axes[0],
            column_field=axes[1],
        )
    return Reasons(
        plan_id=plan.id,
        summary=plan.explanation.summary,
        step_seconds=planned.step_seconds,
        binding_constraints=plan.explanation.binding_constraints,
        shadow_prices=prices,
        runner_up=rival,
        objections=tuple(objections),
        heatmap=cells,
        search_count=inquiry.search_count,
        planner_version=planner_version(),
        objective=planned.objective,
        objective_value=planned.value,
        device_count=planned.request.hardware.device_count,
        cluster_device_count=planned.asked.hardware.device_count,
        safety=even,
    )
