"""Objection: why not another strategy, or other degrees, than the plan's.

A whole strategy is held to the rules, to the memory and to the plan's step, in this order. Degrees
alone are fixed, the rest is planned again, and the best plan that has them is compared; where there
is none, the search has proven it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from planner.cost.step import predict
from planner.explain import describe_strategy
from planner.fixed_limits import fields_outside, is_within, limits_with
from planner.ilp.result import NotFound
from planner.inquiry import Inquiry, Solution
from planner.planned import Planned
from planner.refusal import excesses, resolved_and_broken, rules
from planner.schema.job import Objective
from planner.schema.plan import Prediction
from planner.schema.reasons import Cause, Excess, Objection, ObjectionVerdict
from planner.schema.strategy import Strategy
from planner.units import format_bytes, format_seconds
from planner.variation import with_limits

_EQUAL = 1e-9
_CAUSE_LIMIT = 5


def why_not_strategy(planned: Planned, strategy: Strategy, *, asked: str) -> Objection:
    """Return what speaks against a strategy that the user wrote."""
    request = planned.request
    job = request.job.resolved
    whole, broken = resolved_and_broken(request, strategy)
    if whole is None or broken:
        return _refused(asked, broken)
    prediction = predict(request.workload, request.hardware, job, whole)
    outside = tuple(fields_outside(whole, job.limits))
    return _judged(planned, whole, prediction, asked=asked, outside=outside)


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
    answer = inquiry.ask(with_limits(planned.request, **dict(limits)))
    outside = tuple(name for name in fixed if not is_within(name, limits, own))
    if isinstance(answer, Solution):
        return _judged(
            planned, answer.strategy, answer.prediction, asked=asked, outside=outside
        ).model_copy(update={"certificate": answer.certificate})
    if answer.proven and answer.configurations_total == 0:
        broken = rules(answer, planned.request, limits, fixed=fixed)
        return _refused(asked, broken).model_copy(update={"outside_limits": outside})
    return _nothing(answer, asked=asked, outside=outside)


def _refused(asked: str, broken: tuple[str, ...]) -> Objection:
    return Objection(asked=asked, verdict="illegal", answer=broken[0], rules=broken)


def _nothing(answer: NotFound, *, asked: str, outside: tuple[str, ...]) -> Objection:
    """Return that no plan has what was fixed: it was not found in time, or none fits."""
    if not answer.proven:
        return Objection(
            asked=asked,
            verdict="out_of_time",
            answer="no plan with it was found in time, and none was ruled out",
            outside_limits=outside,
        )
    lacking = excesses(answer)
    least = f": the leanest needs {_excess_words(lacking[0])}" if lacking else ""
    return Objection(
        asked=asked,
        verdict="does_not_fit",
        answer=f"none of {answer.configurations_total} configurations with it fits{least}",
        excesses=lacking,
        outside_limits=outside,
    )


def _judged(
    planned: Planned,
    strategy: Strategy,
    prediction: Prediction,
    *,
    asked: str,
    outside: tuple[str, ...],
) -> Objection:
    """Return how a legal strategy compares: whether it fits, then how fast it is."""
    step, best = prediction.step_seconds.p50, planned.step_seconds
    lacking = tuple(stage_excesses(prediction))
    differing = step_causes(planned.prediction, prediction)
    verdict: ObjectionVerdict
    if lacking:
        where = f"stage {lacking[0].stage} needs {_excess_words(lacking[0])}"
        verdict, answer = "does_not_fit", f"does not fit: {where}"
    else:
        verdict, answer = _pace(step, best, causes=differing)
        if verdict == "faster":
            answer += f", but {_why_not_chosen(planned, outside)}"
    return Objection(
        asked=asked,
        verdict=verdict,
        answer=f"{describe_strategy(strategy)}: {answer}",
        excesses=lacking,
        outside_limits=outside,
        step_seconds=step,
        slower_seconds=step - best,
        slower_ratio=step / best - 1.0,
        causes=differing,
        strategy=strategy,
    )


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


def _why_not_chosen(planned: Planned, outside: tuple[str, ...]) -> str:
    if outside:
        return f"the job's limits rule it out: {', '.join(outside)}"
    if planned.request.job.resolved.objective is Objective.MEMORY:
        return "the plan was made for least memory"
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


def _excess_words(excess: Excess) -> str:
    resource = excess.resource.replace("_", " ")
    return (
        f"{format_bytes(excess.required_bytes)} of {resource}, "
        f"{format_bytes(excess.excess_bytes)} more than there is"
    )


def step_causes(plan: Prediction, other: Prediction) -> tuple[Cause, ...]:
    """Return the parts of the step that differ most."""
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
    return tuple(cause for cause in ranked[:_CAUSE_LIMIT] if cause.difference_seconds)
