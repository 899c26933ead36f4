"""Objective words: what a plan has of what it was asked to be best at, and what is proven of it."""

from __future__ import annotations

from math import isclose

from planner.schema.job import Objective
from planner.schema.plan import Alternative, Certificate
from planner.units import format_bytes, format_seconds


def value_words(objective: Objective, value: float) -> str:
    """Return a value of the objective with its unit: `3.2 GiB on the fullest device`."""
    match objective:
        case Objective.THROUGHPUT:
            return f"{format_seconds(value)} a step"
        case Objective.COST:
            return f"${value:.4g} per million tokens"
        case Objective.MEMORY:
            return f"{format_bytes(value)} on the fullest device"
        case Objective.DEVICES:
            return device_words(value)


def device_words(count: float) -> str:
    """Return `1 device`, `2 devices`."""
    return f"{count:.0f} device{'' if round(count) == 1 else 's'}"


def excess_words(objective: Objective, difference: float, ratio: float) -> str:
    """Return how much more of the objective there is: `66.9 ms (1.62%) slower`."""
    if objective is Objective.THROUGHPUT:
        return f"{format_seconds(difference)} ({ratio:.2%}) slower"
    return f"{value_words(objective, difference)} ({ratio:.2%}) more"


def proof_words(certificate: Certificate) -> str:
    """Return what is proven: of the objective first, then of the step of plans as good at it."""
    value = certificate.objective_value
    step = format_seconds(certificate.lower_bound_seconds)
    if certificate.objective is Objective.THROUGHPUT or value is None:
        return _step_words(step, certificate)
    bound = value_words(certificate.objective, certificate.objective_lower_bound or 0.0)
    alike = _as_good(certificate.objective)
    return f"no plan has less than {bound}, and none {alike} is under {step} a step"


def _step_words(step: str, certificate: Certificate) -> str:
    """Return what is proven of the step, and of which steps where that matters."""
    said = certificate.closed_form
    if said is not None and said.is_proven and certificate.status == "feasible":
        least = format_seconds(said.least_seconds or 0.0)
        return f"{_bound_words(step, certificate)}; the least closed form, {least}, is proven"
    return _bound_words(step, certificate)


def _bound_words(step: str, certificate: Certificate) -> str:
    said = certificate.closed_form
    if said is not None and said.simulated_count == 0:
        return f"no configuration is under {step}; the pipeline is too long to be simulated"
    if said is not None and said.simulated_count > 1:
        return (
            f"of {said.simulated_count} kinds of plans the best was simulated, and no other is "
            f"under {step} by the closed form"
        )
    is_same = said is None or isclose(said.lower_bound_seconds, certificate.lower_bound_seconds)
    return f"no configuration is under {step}{'' if is_same else ' by the closed form'}"


def _as_good(objective: Objective) -> str:
    """Return among which plans the bound of the step holds."""
    match objective:
        case Objective.MEMORY:
            return "that takes no more"
        case Objective.DEVICES:
            return "on as many"
        case _:
            return "on the same devices"


def rival_place(objective: Objective) -> str:
    """Return, with a space before it, among which plans a runner-up of a plan was looked for."""
    match objective:
        case Objective.THROUGHPUT:
            return ""
        case Objective.MEMORY:
            return " that takes no more memory"
        case _:
            return " on the same devices"


def alternative_words(objective: Objective, other: Alternative) -> str:
    """Return what a configuration that was not chosen would cost at best."""
    bound = "at least " if other.is_lower_bound else ""
    step = format_seconds(other.step_seconds)
    if objective is Objective.COST and other.objective_value is not None:
        return f"{bound}{value_words(objective, other.objective_value)}, {bound}{step} a step"
    return f"{bound}{step}"
