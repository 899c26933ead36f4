"""Simplicity words: what is said of a plan beside the fastest one."""

from __future__ import annotations

from planner.answers.chance_words import percent
from planner.answers.explain import describe_strategy
from planner.schema.plan import Plan, Simplicity
from planner.units import counted, format_seconds


def simplicity_words(plan: Plan) -> str | None:
    """Return how simple the plan is, and what the fastest one is; None where that was not asked."""
    said = plan.certificate.simplicity
    if said is None:
        return None
    within = f"within {percent(said.tolerance_ratio)}"
    own = _techniques(said.techniques)
    if plan.strategy == said.fastest:
        return f"it is the fastest, with {own}; {_no_simpler(said)} is {within} of it"
    saved = 1.0 - said.fastest_step_seconds / plan.prediction.step_seconds.p50
    return (
        f"the simplest {within} of the fastest, with {own}{_how_sure(said)}; the fastest, "
        f"{describe_strategy(said.fastest)}, takes {format_seconds(said.fastest_step_seconds)} "
        f"({saved:.2%} less) with {_techniques(said.fastest_techniques)}"
    )


def _techniques(names: tuple[str, ...]) -> str:
    if not names:
        return "nothing beyond data parallelism"
    return f"{counted(len(names), 'technique')} ({', '.join(names)})"


def _how_sure(said: Simplicity) -> str:
    return ", proven" if said.status == "optimal" else ", as far as was looked"


def _no_simpler(said: Simplicity) -> str:
    return (
        "no simpler plan" if said.status == "optimal" else "no simpler plan, as far as was looked,"
    )
