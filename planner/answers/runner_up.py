"""Runner-up: the plan of other degrees that comes next in what the plan was asked to be best at.

On the plan's own devices cost goes by the step, and so does what is best among plans on as many
devices: one search keeps the fastest plan of every group of degrees. Least memory does not, and the
leanest plan of other degrees is looked for in the boxes of limits that leave the plan's own out.
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.answers.explain import describe_strategy
from planner.answers.finalists import with_simulated_step
from planner.answers.least_memory import PEAK_TOLERANCE, leanest
from planner.ilp.problem import NotFound
from planner.requests.inquiry import Inquiry, Solution, solution
from planner.requests.planned import Planned
from planner.requests.variation import with_limits, with_peak_cap
from planner.schema.job import DegreeLimit, Objective
from planner.schema.reasons import Rival
from planner.schema.strategy import Strategy
from planner.space.degrees import enumerate_configurations

_DEGREES = (
    "tensor_parallel_degree",
    "pipeline_parallel_degree",
    "context_parallel_degree",
    "expert_parallel_degree",
)
_SHARE_RATIO = 1.0 / 3.0
_LESS_REACH = 1e-9


def runner_up(planned: Planned, *, inquiry: Inquiry) -> Rival | None:
    """Return the best plan of other degrees; `None` if there is no other, or none was found.

    It may be better than a plan that is simpler.

    Raises:
        SolverError: if the solver fails.
        VerificationError: if a plan does not survive its own recomputation.
    """
    if planned.objective is Objective.MEMORY:
        with inquiry.part_of(_SHARE_RATIO):
            return _leanest(planned, inquiry)
    best = inquiry.best_groups(planned.request, 2)
    others = [one for one in best if not _has_degrees_of(one.strategy, planned.strategy)]
    steps = map(with_simulated_step, others)
    rival = min(steps, key=lambda one: one.step_seconds, default=None)
    return None if rival is None else _rival(planned, rival, proven=rival.is_proven)


def _has_degrees_of(one: Strategy, other: Strategy) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in _DEGREES)


def _leanest(planned: Planned, inquiry: Inquiry) -> Rival | None:
    """Return the plan of least memory of other degrees."""
    best: Solution | None = None
    bound_bytes, proven = float("inf"), True
    boxes = list(_other_degrees(planned))
    for place, box in enumerate(boxes):
        asked = with_limits(planned.request, **box)
        if best is not None:
            asked = with_peak_cap(asked, best.peak_memory_bytes * (1.0 - _LESS_REACH))
        with inquiry.part_of(2.0 / (len(boxes) - place + 1)):
            answer = leanest(asked, inquiry=inquiry)
        if isinstance(answer, NotFound):
            proven = proven and answer.proven
            continue
        best = with_simulated_step(solution(planned.request, answer.found))
        bound_bytes = min(bound_bytes, answer.bound_bytes)
    if best is None:
        return None
    closed = bound_bytes >= best.peak_memory_bytes * (1.0 - PEAK_TOLERANCE)
    return _rival(planned, best, proven=proven and closed)


def _other_degrees(planned: Planned) -> Iterator[dict[str, DegreeLimit]]:
    """Yield limits that together allow all degrees but the plan's, each of them once.

    None goes beyond the degrees of the searched space: a limit that asks for more of one gets it.
    """
    request, held = planned.request, dict[str, DegreeLimit]()
    job = request.job.resolved
    space = enumerate_configurations(request.model.resolved, request.hardware, job).columns()
    for name in _DEGREES:
        own, given = getattr(planned.strategy, name), getattr(job.limits, name)
        largest = int(getattr(space, name).max(initial=own))
        for least, most in ((given.min, own - 1), (own + 1, min(given.max, largest))):
            if least <= most:
                yield {**held, name: DegreeLimit(min=least, max=most)}
        held[name] = DegreeLimit(min=own, max=own)


def _rival(planned: Planned, second: Solution, *, proven: bool) -> Rival:
    return Rival(
        description=describe_strategy(second.strategy),
        step_seconds=second.step_seconds,
        slower_seconds=second.step_seconds - planned.step_seconds,
        slower_ratio=second.step_seconds / planned.step_seconds - 1.0,
        proven=proven,
        strategy=second.strategy,
        objective_value=second.value,
        more_value=second.value - planned.value,
        more_ratio=second.value / planned.value - 1.0 if planned.value else 0.0,
    )
