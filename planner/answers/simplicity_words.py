"""Simplicity words: what is said of a plan beside the fastest one."""

from __future__ import annotations

from planner.answers.chance_words import percent
from planner.answers.explain import describe_strategy
from planner.schema.plan import Plan, Simplicity
from planner.schema.strategy import Strategy
from planner.units import counted, format_seconds

_LEAST_SAVED_RATIO = 5e-5


def simplicity_words(plan: Plan) -> str | None:
    """Return how simple the plan is, and what the fastest one is; None where that was not asked."""
    said, step_seconds = plan.certificate.simplicity, plan.prediction.step_seconds.p50
    return None if said is None else beside_fastest(said, plan.strategy, step_seconds)


def beside_fastest(said: Simplicity, strategy: Strategy, step_seconds: float) -> str:
    """Return how simple a strategy is, and what the fastest one is."""
    within = f"within {percent(said.tolerance_ratio)}"
    own = _techniques(said.techniques)
    if strategy == said.fastest:
        return f"it is the fastest, with {own}; {_no_simpler(said)} is {within} of it"
    return (
        f"the simplest {within} of the fastest, with {own}{_how_sure(said)}; the fastest, "
        f"{describe_strategy(said.fastest)}, takes {_less(said, step_seconds)} "
        f"with {_techniques(said.fastest_techniques)}"
    )


def fastest_words(said: Simplicity | None, strategy: Strategy, step_seconds: float) -> str | None:
    """Return in short what the fastest strategy takes.

    None where it is the strategy itself, or is no faster by the digits that are shown.
    """
    if said is None or strategy == said.fastest:
        return None
    if step_seconds - said.fastest_step_seconds < _LEAST_SAVED_RATIO * step_seconds:
        return None
    return f"the fastest takes {_less(said, step_seconds)}"


def _less(said: Simplicity, step_seconds: float) -> str:
    saved = 1.0 - said.fastest_step_seconds / step_seconds
    return f"{format_seconds(said.fastest_step_seconds)} ({saved:.2%} less)"


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
