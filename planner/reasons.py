"""Reasons: everything that explains a finished plan, each figure found by planning again."""

from __future__ import annotations

from collections.abc import Sequence

from planner.explain import describe_strategy
from planner.heatmap import heatmap
from planner.inquiry import Inquiry
from planner.objection import Planned
from planner.resolution import Request, resolved_request
from planner.schema.plan import Plan
from planner.schema.reasons import Objection, Reasons, Rival
from planner.shadow_price import shadow_prices
from planner.verify import verify
from planner.version import planner_version


def planned_of(plan: Plan) -> Planned:
    """Return the plan with its request resolved again, once it is known to hold.

    Raises:
        VerificationError: if the plan does not survive its own recomputation.
        InputError: if the plan's device has no profile here.
    """
    verify(plan)
    request = resolved_request(plan.model, plan.cluster, plan.job.resolved)
    return Planned(request=request, strategy=plan.strategy, prediction=plan.prediction)


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
    inquiry.tell("runner-up", 0, 3)
    runner_up = _runner_up(planned.request, planned.step_seconds, inquiry=inquiry)
    inquiry.tell("shadow prices", 1, 3)
    prices = tuple(
        shadow_prices(
            planned.request,
            planned.step_seconds,
            plan_is_proven=plan.certificate.status == "optimal",
            inquiry=inquiry,
        )
    )
    inquiry.tell("heatmap", 2, 3)
    cells = None
    if axes is not None:
        cells = heatmap(
            planned.request,
            best_seconds=planned.step_seconds,
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
        runner_up=runner_up,
        objections=tuple(objections),
        heatmap=cells,
        search_count=inquiry.search_count,
        planner_version=planner_version(),
    )


def _runner_up(request: Request, step_seconds: float, *, inquiry: Inquiry) -> Rival | None:
    """Return the best plan of other degrees; `None` if there is no other."""
    best = inquiry.best_groups(request, 2)
    if len(best) < 2:
        return None
    second = best[1]
    return Rival(
        description=describe_strategy(second.strategy),
        step_seconds=second.step_seconds,
        slower_seconds=second.step_seconds - step_seconds,
        slower_ratio=second.step_seconds / step_seconds - 1.0,
        proven=second.is_proven,
        strategy=second.strategy,
    )
