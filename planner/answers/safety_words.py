"""Safety words: what is said of the most likely plan, and of what a higher chance costs."""

from __future__ import annotations

from planner.answers.chance_words import percent
from planner.answers.objective_words import value_words
from planner.schema.job import Objective
from planner.schema.reasons import Safety
from planner.units import format_seconds


def safety_words(safety: Safety, objective: Objective) -> str:
    """Return the most likely plan, and what the chance that is asked for costs beside it."""
    asked = f"a chance of fitting of {percent(safety.asked_probability)}"
    sure = "" if safety.proven else " (not proven)"
    if safety.cost_value is None or safety.step_seconds is None:
        return f"what {asked} costs was not solved in time"
    if safety.cost_value <= 0.0:
        return f"{asked} costs nothing: no plan that is more likely than not to fit is better{sure}"
    cost = (
        f"{format_seconds(safety.cost_value)} a step"
        if objective is Objective.THROUGHPUT
        else value_words(objective, safety.cost_value)
    )
    step, chance = format_seconds(safety.step_seconds), safety.fits_probability or 0.0
    return (
        f"{asked} costs {cost} ({safety.cost_ratio or 0.0:.2%}){sure}: the best plan that is more "
        f"likely than not to fit, {safety.description}, takes {step} with a chance of {chance:.1%}"
    )
