"""The work of analyses: what a process of the pool does for each kind of question."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from planner.answers.alternatives import best_alternatives
from planner.answers.framework_prices import framework_prices
from planner.answers.frontier import frontier
from planner.answers.heatmap import heatmap
from planner.answers.objection import why_not_degrees
from planner.answers.reasons import planned_of, reasons
from planner.errors import InputError, VerificationError
from planner.proof.verify import verify
from planner.requests.inquiry import Inquiry, Pool
from planner.schema.document import Part
from planner.schema.job import DegreeLimit
from planner.schema.plan import Plan

_POINT_COUNT = 6
_ALTERNATIVES = 6

Told = tuple[str, int, int]


def analyse(
    kind: str,
    plan_json: str,
    asked: str,
    *,
    seconds: float,
    dask_scheduler: str = "",
    on_progress: Callable[[Told], None] | None = None,
) -> str:
    """Return the document that answers the question, as JSON; `asked` is `name=degree,...`.

    With a Dask scheduler, parts that do not need one another are worked out on its workers.

    Raises:
        InputError: if what was asked cannot be fixed, or the plan is of another cost model.
        SolverError: if the solver fails.
    """

    def listen(phase: str, done: int, total: int) -> None:
        if on_progress is not None:
            on_progress((phase, done, total))

    plan = Plan.model_validate_json(plan_json)
    _check(plan)
    with _pool(dask_scheduler, seconds) as pool:
        inquiry = Inquiry.within(seconds, listen=listen, pool=pool)
        return _ANSWERS[kind](plan, asked, inquiry).model_dump_json()


@contextmanager
def _pool(dask_scheduler: str, seconds: float) -> Iterator[Pool | None]:
    if not dask_scheduler:
        yield None
        return
    from planner.pools.dask_pool import DaskPool  # noqa: PLC0415 - an extra

    pool = DaskPool(dask_scheduler, seconds_limit=seconds)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _check(plan: Plan) -> None:
    """Refuse a plan that this planner prices otherwise: its neighbours would not compare."""
    try:
        verify(plan)
    except VerificationError as error:
        raise InputError(
            "was made with another version of the cost model",
            field="plan",
            value=plan.id,
            remedy=f"plan again, then ask about the new plan ({error})",
        ) from None


def _reasons(plan: Plan, _: str, inquiry: Inquiry) -> Part:
    return reasons(plan, inquiry=inquiry)


def _heatmap(plan: Plan, _: str, inquiry: Inquiry) -> Part:
    planned = planned_of(plan)
    return heatmap(
        planned.asked, best_seconds=planned.step_seconds, planned=planned, inquiry=inquiry
    )


def _frontier(plan: Plan, _: str, inquiry: Inquiry) -> Part:
    request = planned_of(plan).request
    degrees, choices = best_alternatives(request, _ALTERNATIVES, inquiry=inquiry)
    return frontier(
        request,
        inquiry=inquiry,
        point_count=_POINT_COUNT,
        alternatives=degrees,
        other_choices=choices,
    )


def _frameworks(plan: Plan, _: str, inquiry: Inquiry) -> Part:
    return framework_prices(plan, inquiry=inquiry)


def _why_not(plan: Plan, asked: str, inquiry: Inquiry) -> Part:
    fixed = {
        name: DegreeLimit(min=int(degree), max=int(degree)).model_dump()
        for name, _, degree in (part.partition("=") for part in asked.split(","))
    }
    return why_not_degrees(planned_of(plan), fixed, asked=asked, inquiry=inquiry)


_ANSWERS: dict[str, Callable[[Plan, str, Inquiry], Part]] = {
    "reasons": _reasons,
    "heatmap": _heatmap,
    "frontier": _frontier,
    "frameworks": _frameworks,
    "why-not": _why_not,
}
