"""Safety: what the chance of fitting that a job asks for costs, beside the most likely plan.

The most likely plan is the best of all that are more likely than not to fit. Best is held against
best, as with prices of memory, also where the plan itself is the simplest within a tolerance of it:
what a simpler plan takes beside is no cost of safety.
"""

from __future__ import annotations

from planner.answers.explain import describe_strategy
from planner.answers.finalists import best_plan
from planner.ilp.problem import NotFound
from planner.requests.inquiry import Inquiry
from planner.requests.planned import Planned
from planner.requests.variation import with_limits
from planner.schema.reasons import Safety
from planner.schema.strategy import Strategy

EVEN_CHANCE = 0.5


def safety(planned: Planned, *, inquiry: Inquiry) -> Safety | None:
    """Return the most likely plan and what safety costs, `None` where none is asked for.

    Raises:
        SolverError: if the solver fails.
        VerificationError: if a plan does not survive its own recomputation.
    """
    asked = planned.asked.job.resolved.limits.fits_probability
    if asked is None or asked <= EVEN_CHANCE:
        return None
    answer = best_plan(with_limits(planned.asked, fits_probability=EVEN_CHANCE), inquiry=inquiry)
    if isinstance(answer, NotFound):
        return Safety(asked_probability=asked, proven=False)
    cost = planned.best_value - answer.value
    if cost <= 0.0:
        return _free(planned, asked, proven=planned.is_proven and answer.is_proven)
    return Safety(
        asked_probability=asked,
        proven=planned.is_proven and answer.is_proven,
        strategy=answer.strategy,
        description=describe_strategy(answer.strategy),
        fits_probability=answer.prediction.fits_probability,
        step_seconds=answer.step_seconds,
        asked_description=describe_strategy(_best(planned)),
        asked_step_seconds=planned.best_step_seconds,
        cost_seconds=planned.best_step_seconds - answer.step_seconds,
        cost_value=cost,
        cost_ratio=cost / answer.value,
    )


def _free(planned: Planned, asked: float, *, proven: bool) -> Safety:
    """Return that the most likely plan is no better: the best one with the chance asked for."""
    best = _best(planned)
    return Safety(
        asked_probability=asked,
        proven=proven,
        strategy=best,
        description=describe_strategy(best),
        step_seconds=planned.best_step_seconds,
        asked_description=describe_strategy(best),
        asked_step_seconds=planned.best_step_seconds,
        cost_seconds=0.0,
        cost_value=0.0,
        cost_ratio=0.0,
    )


def _best(planned: Planned) -> Strategy:
    """Return the best strategy with the chance that was asked for."""
    return planned.strategy if planned.fastest is None else planned.fastest
