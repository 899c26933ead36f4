"""Framework prices: what a plan's step would be under each framework's restrictions.

Each framework is searched as `plan --framework` does, under its own stack: for the simplest plan
within the job's tolerance of the fastest.
"""

from __future__ import annotations

from planner.answers.explain import describe_strategy
from planner.answers.finalists import fastest_plan
from planner.cost.step import predict_simulated
from planner.errors import InputError
from planner.ilp.problem import NotFound
from planner.requests.inquiry import Inquiry, Solution
from planner.requests.resolution import resolved_request
from planner.schema.framework_prices import FrameworkPrice, FrameworkPrices
from planner.schema.job import Framework, Job
from planner.schema.plan import Plan
from planner.schema.strategy import Strategy
from planner.version import planner_version

_FRAMEWORKS = tuple(Framework)


def framework_prices(plan: Plan, *, inquiry: Inquiry) -> FrameworkPrices:
    """Return the step of each framework's plan beside the plan's, within the inquiry's time.

    Raises:
        SolverError: if the solver fails.
        VerificationError: if a plan does not survive its own recomputation.
    """
    prices = []
    inquiry.tell("frameworks", 0, len(_FRAMEWORKS))
    for price in inquiry.each(_price, [(plan, framework) for framework in _FRAMEWORKS]):
        prices.append(price)
        inquiry.tell("frameworks", len(prices), len(_FRAMEWORKS))
    return FrameworkPrices(
        plan=plan.id,
        description=describe_strategy(plan.strategy),
        stack=plan.job.resolved.stack,
        step_seconds=plan.prediction.step_seconds.p50,
        prices=tuple(prices),
        planner_version=planner_version(),
    )


def _price(plan: Plan, framework: Framework, *, inquiry: Inquiry) -> FrameworkPrice:
    try:
        request = resolved_request(plan.model, plan.cluster, _job(plan, framework))
        answer = fastest_plan(request, inquiry=inquiry)
        if isinstance(answer, Solution):
            answer = inquiry.simplified(answer)
    except InputError as refused:
        return FrameworkPrice(
            framework=framework, stack=framework.stack, status="refused", reason=str(refused)
        )
    if isinstance(answer, NotFound):
        return FrameworkPrice(
            framework=framework,
            stack=framework.stack,
            status="infeasible" if answer.proven else "out_of_time",
        )
    step_seconds = plan.prediction.step_seconds.p50
    under_the_plans_stack = _step_seconds(plan, answer.strategy)
    return FrameworkPrice(
        framework=framework,
        stack=framework.stack,
        status="found",
        strategy=answer.strategy,
        description=describe_strategy(answer.strategy),
        step_seconds=answer.step_seconds,
        slower_ratio=answer.step_seconds / step_seconds - 1.0,
        restriction_ratio=under_the_plans_stack / step_seconds - 1.0,
        stack_ratio=answer.step_seconds / under_the_plans_stack - 1.0,
        certificate=answer.certificate,
    )


def _step_seconds(plan: Plan, strategy: Strategy) -> float:
    """Return what a strategy's step would be under the plan's own stack."""
    free = plan.job.resolved.model_copy(update={"framework": None})
    request = resolved_request(plan.model, plan.cluster, free)
    return predict_simulated(
        request.workload, request.hardware, request.job.resolved, strategy
    ).step_seconds.p50


def _job(plan: Plan, framework: Framework) -> Job:
    """Return the plan's job for a framework, whose stack is its own."""
    named = {"framework": framework, "stack": framework.stack}
    return plan.job.resolved.model_copy(update=named)
