"""Safety words: what is said of the most likely plan, and of what a higher chance costs."""

from __future__ import annotations

from planner.answers.chance_words import percent
from planner.answers.objective_words import value_words
from planner.schema.job import Objective
from planner.schema.reasons import Safety
from planner.units import format_seconds

_ALIKE_RATIO = 5e-4  # steps that are shown with three digits are the same


def safety_words(safety: Safety, objective: Objective, *, step_seconds: float) -> str:
    """Return what the chance that is asked for costs, and which plans are compared for it.

    `step_seconds` are those of the plan that is explained, which may be a simpler one.
    """
    asked = f"a chance of fitting of {percent(safety.asked_probability)}"
    sure = "" if safety.proven else " (not proven)"
    if safety.cost_value is None or safety.step_seconds is None:
        return f"what {asked} costs was not solved in time"
    if safety.cost_value <= 0.0:
        return f"{asked} costs nothing: no plan that is more likely than not to fit is better{sure}"
    is_step = objective is Objective.THROUGHPUT
    cost = (
        f"{format_seconds(safety.cost_value)} a step"
        if is_step
        else value_words(objective, safety.cost_value)
    )
    best = "fastest" if is_step else "best"
    step, chance = format_seconds(safety.step_seconds), safety.fits_probability or 0.0
    return (
        f"{asked} costs {cost} ({safety.cost_ratio or 0.0:.2%}){sure}: the {best} plan that is "
        "more likely than not to fit, "
        f"{safety.description}, takes {step} with a chance of {chance:.1%}"
        f"{_beside(safety, best, step_seconds)}"
    )


def _beside(safety: Safety, best: str, step_seconds: float) -> str:
    """Return the best plan with the chance asked for, and that the plan itself is a simpler one."""
    own = safety.asked_step_seconds
    if own is None:  # a document from before it was kept
        return ""
    held = f", the {best} with the chance asked for, {safety.asked_description}, "
    if abs(step_seconds - own) <= _ALIKE_RATIO * own:
        return f"{held}{format_seconds(own)}"
    simpler = f"this plan is a simpler one, of {format_seconds(step_seconds)}"
    return f"{held}{format_seconds(own)}; {simpler}"
