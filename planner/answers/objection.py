"""Objection: why not another strategy, or other degrees, than the plan's.

A whole strategy is held to the rules, to the memory and to the plan's step, in this order. Degrees
alone are fixed, the rest is planned again for the plan's objective on the whole cluster that was
asked about, and the best plan that has them is compared; where there is none, the search has proven
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from planner.answers.chance_words import fit_words, fitting_words, percent, room_words
from planner.answers.explain import describe_strategy
from planner.answers.finalists import best_plan
from planner.answers.objective_words import device_words, excess_words, value_words
from planner.answers.objectives import part_requests
from planner.answers.refusal import excesses, resolved_and_broken, rules
from planner.cost.step import predict_simulated
from planner.ilp.problem import NotFound
from planner.requests.fixed_limits import fields_outside, is_within, limits_with
from planner.requests.inquiry import Inquiry, Solution
from planner.requests.planned import Planned
from planner.requests.resolution import Request
from planner.requests.variation import with_limits
from planner.schema.job import Limits, Objective
from planner.schema.plan import Prediction
from planner.schema.reasons import Cause, Excess, Objection, ObjectionVerdict
from planner.schema.strategy import Strategy
from planner.space.complexity import complexity
from planner.units import counted, format_bytes, format_seconds

_EQUAL = 1e-9
_CAUSE_LIMIT = 5


def why_not_strategy(planned: Planned, strategy: Strategy, *, asked: str) -> Objection:
    """Return what speaks against a strategy that the user wrote."""
    request = _request_for(planned, strategy)
    job = request.job.resolved
    whole, broken = resolved_and_broken(request, strategy)
    if whole is None or broken:
        return _refused(asked, broken)
    outside = tuple(fields_outside(whole, job.limits))
    prediction = predict_simulated(request.workload, request.hardware, job, whole)
    other = Planned(request=request, strategy=whole, prediction=prediction)
    return _judged(planned, other, asked=asked, outside=outside)


def _request_for(planned: Planned, strategy: Strategy) -> Request:
    """Return the request on the part of the cluster that the strategy is legal on.

    That is the plan's own, or the smallest other; where there is none, the whole cluster.
    """
    parts = [] if planned.whole is None else part_requests(planned.whole)
    parts.sort(key=lambda part: part.hardware.device_count)
    for request in (planned.request, *parts):
        whole, broken = resolved_and_broken(request, strategy)
        if whole is not None and not broken:
            return request
    return planned.asked


def why_not_degrees(
    planned: Planned, fixed: Mapping[str, Any], *, asked: str, inquiry: Inquiry
) -> Objection:
    """Return what speaks against the best plan with some degrees or techniques fixed.

    Raises:
        InputError: if a name in `fixed` cannot be fixed or its value is bad.
        SolverError: if the solver fails.
        VerificationError: if a plan does not survive its own recomputation.
    """
    own = planned.request.job.resolved.limits
    limits = limits_with(own, fixed)
    answer = best_plan(with_limits(planned.asked, **dict(limits)), inquiry=inquiry)
    outside = tuple(name for name in fixed if not is_within(name, limits, own))
    if isinstance(answer, Solution):
        other = Planned(
            request=answer.request, strategy=answer.strategy, prediction=answer.prediction
        )
        return _judged(planned, other, asked=asked, outside=outside).model_copy(
            update={"certificate": answer.certificate}
        )
    if answer.proven and answer.configurations_total == 0:
        broken = rules(answer, planned.asked, limits, fixed=fixed)
        return _refused(asked, broken).model_copy(update={"outside_limits": outside})
    return _nothing(answer, limits, asked=asked, outside=outside)


def _refused(asked: str, broken: tuple[str, ...]) -> Objection:
    return Objection(asked=asked, verdict="illegal", answer=broken[0], rules=broken)


def _nothing(
    answer: NotFound, limits: Limits, *, asked: str, outside: tuple[str, ...]
) -> Objection:
    """Return that no plan has what was fixed: it was not found in time, or none fits."""
    if not answer.proven:
        return Objection(
            asked=asked,
            verdict="out_of_time",
            answer="no plan with it was found in time, and none was ruled out",
            outside_limits=outside,
        )
    lacking = excesses(answer)
    least = f": the leanest needs at least {_excess_words(lacking[0], limits)}" if lacking else ""
    return Objection(
        asked=asked,
        verdict="does_not_fit",
        answer=f"none of {answer.configurations_total} configurations with it "
        f"{fitting_words(limits)}{least}",
        excesses=lacking,
        outside_limits=outside,
    )


def _judged(planned: Planned, other: Planned, *, asked: str, outside: tuple[str, ...]) -> Objection:
    """Return how a legal strategy compares: whether it fits, then how good and fast it is."""
    step, best = other.step_seconds, planned.step_seconds
    lacking = tuple(stage_excesses(other.prediction))
    differing = step_causes(planned.prediction, other.prediction)
    verdict: ObjectionVerdict
    if lacking:
        limits = other.request.job.resolved.limits
        where = f"stage {lacking[0].stage} needs {_excess_words(lacking[0], limits)}"
        verdict = "does_not_fit" if other.prediction.fits_probability < 0.5 else "too_tight"
        answer = f"{fit_words(other.prediction)}: {where}"
    else:
        verdict, answer = _worth(planned, other, causes=differing)
        if verdict in {"faster", "better"}:
            answer += f", but {_why_not_chosen(planned, other, outside)}"
    return Objection(
        asked=asked,
        verdict=verdict,
        answer=f"{describe_strategy(other.strategy)} {answer}",
        excesses=lacking,
        outside_limits=outside,
        step_seconds=step,
        slower_seconds=step - best,
        slower_ratio=step / best - 1.0,
        causes=differing,
        strategy=other.strategy,
        device_count=other.request.hardware.device_count,
        objective_value=other.value,
        more_value=other.value - planned.value,
        more_ratio=_ratio(other.value, planned.value),
    )


def _worth(
    planned: Planned, other: Planned, *, causes: tuple[Cause, ...]
) -> tuple[ObjectionVerdict, str]:
    """Return how much more of the objective there is; where that is equal, how much slower."""
    objective, ratio = planned.objective, _ratio(other.value, planned.value)
    if objective is Objective.THROUGHPUT or abs(ratio) <= _EQUAL:
        return _pace(other.step_seconds, planned.step_seconds, causes=causes)
    where = f" (on {device_words(other.request.hardware.device_count)})"
    place = "" if objective is Objective.DEVICES or planned.whole is None else where
    has = f"has {value_words(objective, other.value)}{place}, "
    if ratio > 0.0:
        return "worse", has + excess_words(objective, other.value - planned.value, ratio)
    less = value_words(objective, planned.value - other.value)
    return "better", f"{has}{less} ({-ratio:.2%}) less"


def _ratio(value: float, own: float) -> float:
    return value / own - 1.0 if own > 0.0 else 0.0


def _pace(step: float, best: float, *, causes: tuple[Cause, ...]) -> tuple[ObjectionVerdict, str]:
    ratio = step / best - 1.0
    if abs(ratio) <= _EQUAL:
        return "as_fast", "is as fast as the plan"
    words = f"{format_seconds(abs(step - best))} ({abs(ratio):.2%})"
    if ratio < 0.0:
        return "faster", f"would be {words} faster"
    more = [cause for cause in causes if cause.difference_seconds > 0.0]
    blame = ", ".join(
        f"{cause.name.replace('_', ' ')} {format_seconds(cause.difference_seconds)} more"
        for cause in more[:2]
    )
    return "slower", f"is {words} slower" + (f": {blame}" if blame else "")


def _why_not_chosen(planned: Planned, other: Planned, outside: tuple[str, ...]) -> str:
    if outside:
        return f"the job's limits rule it out: {', '.join(outside)}"
    if planned.fastest is not None:
        own, more = complexity(planned.strategy), complexity(other.strategy)
        ratio = planned.request.job.resolved.limits.simplicity_ratio
        if own <= more and other.step_seconds >= planned.best_step_seconds * (1.0 - _EQUAL):
            return (
                f"it takes {counted(more, 'technique')}: the plan, the simplest within "
                f"{percent(ratio)} of the fastest, takes {own}"
            )
    closed_form = other.prediction.closed_form_seconds
    if closed_form >= planned.best_step_seconds * (1.0 - _EQUAL):
        return (
            f"by simulation alone: its closed form, by which plans are found, is "
            f"{format_seconds(closed_form)}"
        )
    return "it is not in the searched space"


def stage_excesses(prediction: Prediction) -> Iterator[Excess]:
    """Yield every stage whose device or host holds less than the strategy needs there."""
    for stage in prediction.stages:
        if stage.peak_memory_bytes > stage.capacity_bytes:
            yield Excess(
                stage=stage.stage,
                resource="device_memory",
                required_bytes=stage.peak_memory_bytes,
                capacity_bytes=stage.capacity_bytes,
                excess_bytes=stage.peak_memory_bytes - stage.capacity_bytes,
                memory_bytes=stage.memory_bytes,
            )
        if stage.host_memory_bytes > stage.host_capacity_bytes:
            yield Excess(
                stage=stage.stage,
                resource="host_memory",
                required_bytes=stage.host_memory_bytes,
                capacity_bytes=stage.host_capacity_bytes,
                excess_bytes=stage.host_memory_bytes - stage.host_capacity_bytes,
            )


def _excess_words(excess: Excess, limits: Limits) -> str:
    resource = excess.resource.replace("_", " ")
    room = room_words(limits) if excess.resource == "device_memory" else "there is"
    return (
        f"{format_bytes(excess.required_bytes)} of {resource}, "
        f"{format_bytes(excess.excess_bytes)} more than {room}"
    )


def step_causes(plan: Prediction, other: Prediction) -> tuple[Cause, ...]:
    """Return the parts of the step that differ most, and all others together as the last."""
    names = type(plan.breakdown_seconds).model_fields
    found = [
        Cause(
            name=name,
            plan_seconds=getattr(plan.breakdown_seconds, name),
            other_seconds=getattr(other.breakdown_seconds, name),
            difference_seconds=getattr(other.breakdown_seconds, name)
            - getattr(plan.breakdown_seconds, name),
        )
        for name in names
    ]
    ranked = sorted(found, key=lambda cause: (-abs(cause.difference_seconds), cause.name))
    differing = [cause for cause in ranked if cause.difference_seconds]
    rest = differing[_CAUSE_LIMIT:]
    return (*differing[:_CAUSE_LIMIT], *([_together(rest)] if rest else ()))


def _together(causes: Sequence[Cause]) -> Cause:
    """Return causes as one, so that what is shown adds up to the difference of the steps."""
    return Cause(
        name="other",
        plan_seconds=sum(cause.plan_seconds for cause in causes),
        other_seconds=sum(cause.other_seconds for cause in causes),
        difference_seconds=sum(cause.difference_seconds for cause in causes),
    )
