"""Parts: one answer of searches of several parts of the space.

The parts together are the space. Each is searched for less than the best of those before it, so
that what none has is proven of all.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from planner.ilp.problem import Found, NotFound
from planner.ilp.settings import CUTOFF_EASING
from planner.schema.bound_record import BoundEngine
from planner.schema.job import Limits
from planner.schema.plan import Certificate

Search = Callable[[Limits, float | None], Found | NotFound]


def search_parts(
    parts: Sequence[Limits],
    search: Search,
    *,
    seconds: float,
    cutoff_seconds: float | None = None,
    group_count: int = 1,
    is_any_welcome: bool = False,
) -> Found | NotFound:
    """Return the best of all `parts`, searched one after another within `seconds`.

    Groups of other degrees than the best's are asked of each part whole, without what is known of
    others. Where any plan is welcome, the first is the answer.
    """
    deadline = time.perf_counter() + seconds
    answers: list[Found | NotFound] = []
    cutoff = cutoff_seconds
    for place, limits in enumerate(parts):
        share = max(deadline - time.perf_counter(), 0.0) / (len(parts) - place)
        timed = limits.model_copy(update={"solver_seconds": min(share, limits.solver_seconds)})
        answer = search(timed, cutoff) if share > 0.0 else _unasked()
        if is_any_welcome and isinstance(answer, Found):
            return answer
        answers.append(answer)
        if isinstance(answer, Found) and group_count == 1:
            better = answer.step_seconds * (1.0 - 2.0 * CUTOFF_EASING)
            cutoff = better if cutoff is None else min(better, cutoff)
    if len(answers) == 1:
        return answers[0]
    return _best(answers, group_count)


def _unasked() -> NotFound:
    return NotFound(configurations_total=0, refused={}, shortfalls=(), proven=False)


def _best(answers: Sequence[Found | NotFound], group_count: int) -> Found | NotFound:
    found = [answer for answer in answers if isinstance(answer, Found)]
    missing = [answer for answer in answers if isinstance(answer, NotFound)]
    if not found:
        return _none(missing)
    best = min(found, key=lambda answer: answer.step_seconds)
    groups = sorted((g for one in found for g in one.groups), key=lambda g: g.step_seconds)
    return replace(
        best,
        certificate=_certificate(best, found, missing),
        groups=tuple(groups[:group_count]),
        left_seconds=min(
            [one.left_seconds for one in found]
            + [float("inf") if one.proven else one.lower_bound_seconds for one in missing]
        ),
        engines={row: name for one in answers for row, name in one.engines.items()},
    )


def _certificate(best: Found, found: Sequence[Found], missing: Sequence[NotFound]) -> Certificate:
    """Return the proof of all parts: the least of their bounds, the sums of their counts.

    A part without a plan under the cutoff is proven to have none, or has its own bound.
    """
    step = best.step_seconds
    bounds = [one.certificate.lower_bound_seconds for one in found]
    bounds += [step if one.proven else one.lower_bound_seconds for one in missing]
    bound = min(step, *bounds)
    own = [one.certificate for one in found]
    optimal = all(one.status == "optimal" for one in own) and all(one.proven for one in missing)
    total = sum(one.configurations_total for one in own)
    lost = sum(one.configurations_total for one in missing)
    engines = Counter(name for one in missing for name in one.engines.values())
    return best.certificate.model_copy(
        update={
            "status": "optimal" if optimal else "feasible",
            "lower_bound_seconds": bound,
            "gap_ratio": 1.0 - bound / step if step > 0.0 else 0.0,
            "configurations_total": total + lost,
            "configurations_pruned": sum(one.configurations_pruned for one in own)
            + lost
            - engines.total(),
            "configurations_branched": sum(one.configurations_branched for one in own)
            + engines[BoundEngine.BRANCH_AND_BOUND],
            "configurations_programmed": sum(one.configurations_programmed for one in own)
            + engines[BoundEngine.INTEGER_PROGRAM],
            "milp_count": sum(one.milp_count for one in own),
            "solve_seconds": sum(one.solve_seconds for one in own),
            "not_searched": tuple(dict.fromkeys(r for one in own for r in one.not_searched)),
        }
    )


def _none(missing: Sequence[NotFound]) -> NotFound:
    refused: Counter[str] = Counter()
    if not missing:
        refused["job.limits and job.framework have no strategy in common"] = 1
    for one in missing:
        refused.update(one.refused)
    shortfalls = sorted(
        (s for one in missing for s in one.shortfalls),
        key=lambda s: s.required_bytes - s.capacity_bytes,
    )
    most = max((len(one.shortfalls) for one in missing), default=0)
    return NotFound(
        configurations_total=sum(one.configurations_total for one in missing),
        refused=dict(refused),
        shortfalls=tuple(shortfalls[:most]),
        proven=all(one.proven for one in missing),
        lower_bound_seconds=min((one.lower_bound_seconds for one in missing), default=0.0),
    )
