"""Objectives: the plan that is best at what a job asks for, and the proof of that.

The fastest plan is one search. For least cost and fewest devices, parts of the cluster are searched
(`planner.requests.subclusters`): what is left idle is not paid for. A part is asked only for plans
better than the best known, so most parts are refuted and not solved. Least memory is found by
`planner.answers.least_memory`. All searches share the inquiry's time; what it leaves open widens
the gap. Whether a simpler plan is taken in its place is for `planner.answers.finalists` to say.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from planner.answers.least_memory import leanest
from planner.cost.adapters import needed_flop_per_token
from planner.cost.arrangement import simulated_plan
from planner.errors import InputError
from planner.ilp.problem import Enough, Found, Group, Groups, NotFound
from planner.proof.verify import RELATIVE_TOLERANCE, objective_value
from planner.requests.inquiry import Inquiry, solution
from planner.requests.resolution import Request, cluster_document
from planner.requests.subclusters import subclusters
from planner.requests.variation import with_cluster
from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.job import Objective
from planner.schema.plan import Certificate

PART_LIMIT = 64
_FIRST_SHARE = 0.5
_SEARCHED_FIRST = 0.8  # of the time, before a simpler plan is looked for
_ROUNDS = 2
_INFINITE = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attained:
    """The best plan found for an objective, and the request on the part of the cluster it uses.

    The certificate says what was proven about the objective.
    """

    request: Request
    found: Found


@dataclass(slots=True, kw_only=True)
class _Part:
    """A part of the cluster, what is known of its plans, and the weight of a second of its step.

    No plan on it is faster than `bound_seconds`; `closed` says that nothing more is to be found.
    """

    request: Request
    weight: float
    bound_seconds: float = 0.0
    closed: bool = False
    found: Found | None = None

    @property
    def device_count(self) -> int:
        return self.request.cluster.resolved.device_count

    @property
    def value(self) -> float:
        """Return the weighted step of the best plan known, inf without any."""
        return _INFINITE if self.found is None else self.weight * self.found.step_seconds

    @property
    def bound(self) -> float:
        """Return what the weighted step of no plan on the part is under."""
        return self.weight * self.bound_seconds


_Best = tuple[_Part, Found]


def attained(request: Request, *, inquiry: Inquiry) -> Attained | NotFound:
    """Return the best plan for the objective of the request's job, or what is missing.

    Raises:
        SolverError: if the solver fails.
        VerificationError: if a plan does not survive its own recomputation.
    """
    started = time.perf_counter()
    match request.job.resolved.objective:
        case Objective.COST:
            answer = _cheapest(request, inquiry)
        case Objective.DEVICES:
            answer = _fewest(request, inquiry)
        case Objective.MEMORY:
            answer = _leanest(request, inquiry)
        case Objective.THROUGHPUT:
            answer = _fastest(request, inquiry)
    if isinstance(answer, Attained):
        certificate = answer.found.certificate.model_copy(
            update={"solve_seconds": time.perf_counter() - started}
        )
        return replace(answer, found=replace(answer.found, certificate=certificate))
    return answer


def _fastest(request: Request, inquiry: Inquiry) -> Attained | NotFound:
    is_last = request.job.resolved.limits.simplicity_ratio <= 0.0
    share = inquiry.share_ratio * (1.0 if is_last else _SEARCHED_FIRST)
    groups = Groups(settle=partial(enough_by_simulation, request))
    found = inquiry.search(request, share_ratio=share, groups=groups)
    if isinstance(found, NotFound):
        return found
    bound = found.certificate.lower_bound_seconds
    return _attained(request, found, objective_bound=bound)


def enough_by_simulation(request: Request, best: Group) -> Enough:
    """Return up to which step a search goes on: the simulated one, if that is the shorter one.

    Where it is longer than the closed form, the search goes on as long as more is left to prove
    than by how much, and without the last programs: the rest of the time is for other kinds.
    """
    job, step = request.job.resolved, best.step_seconds
    _, priced = simulated_plan(request.workload, request.hardware, job, best.strategy)
    longer = priced.step_seconds.p50 - step
    return Enough(step - abs(longer), leaves_programs=longer > 0.0)


def _cheapest(request: Request, inquiry: Inquiry) -> Attained | NotFound:
    """Return the plan of least price x step over the parts of the cluster."""
    parts = [
        _Part(
            request=part,
            weight=part.hardware.price_per_hour,
            bound_seconds=_least_step_seconds(part),
        )
        for part in part_requests(request)
    ]
    parts.sort(key=lambda part: (part.bound, part.device_count))
    _search_all(parts, inquiry)
    best = _best(parts)
    if best is None:
        return _missing(request, inquiry, proven=all(part.closed for part in parts))
    part, found = best[0], _with_step_bound(*best)
    # What the search counts in dollars an hour times seconds, the document has per million tokens.
    value, per_value = part.value, _value_of(part.request, found)
    open_bounds = [part.bound for part in parts if not part.closed]
    ratio = min([value, *open_bounds]) / value if value > 0.0 else 1.0
    words = f"the least cost per token of {len(parts)} parts of the cluster that were compared"
    chosen = _with_words(request, part.request, words)
    return _attained(chosen, found, objective_bound=ratio * per_value)


def _fewest(request: Request, inquiry: Inquiry) -> Attained | NotFound:
    """Return the fastest plan on the fewest devices on which anything fits."""
    parts = [_Part(request=part, weight=1.0) for part in part_requests(request)]
    parts.sort(key=lambda part: part.device_count)
    first = _first_fitting(parts, inquiry)
    count = 0 if first is None else first.device_count
    earlier = _first_fitting(_unsettled(parts, count), inquiry)
    count = count if earlier is None else earlier.device_count
    alike = [part for part in parts if part.device_count == count and not part.closed]
    _search_all(alike, inquiry)
    best = _best(alike)
    if best is None:
        return _missing(request, inquiry, proven=all(part.closed for part in parts))
    words = f"the fewest devices that a plan was found for, of {len(parts)} parts of the cluster"
    chosen = _with_words(request, best[0].request, words)
    least = min([count, *(part.device_count for part in _unsettled(parts, count))])
    return _attained(chosen, _with_step_bound(*best, rivals=alike), objective_bound=float(least))


def _unsettled(parts: Sequence[_Part], device_count: int) -> list[_Part]:
    """Return the parts of fewer devices that were not proven to have no plan."""
    return [part for part in parts if part.device_count < device_count and not part.closed]


def _leanest(request: Request, inquiry: Inquiry) -> Attained | NotFound:
    answer = leanest(request, inquiry=inquiry)
    if isinstance(answer, NotFound):
        return _missing(request, inquiry, proven=answer.proven)
    return _attained(request, answer.found, objective_bound=answer.bound_bytes)


def _missing(request: Request, inquiry: Inquiry, *, proven: bool) -> NotFound:
    """Return what the whole cluster lacks, once no part was found to have a plan."""
    whole = inquiry.search(request) if proven else None
    if isinstance(whole, NotFound):
        return replace(whole, proven=True)
    return NotFound(configurations_total=0, refused={}, shortfalls=(), proven=False)


def _search_all(parts: Sequence[_Part], inquiry: Inquiry) -> None:
    """Search every part for a plan of less than the least value known.

    What stays open in the first round, in which every part has its share, has what is left.
    """
    for _ in range(_ROUNDS):
        waiting = [part for part in parts if not part.closed]
        for place, part in enumerate(waiting):
            best = _best(parts)
            value = _INFINITE if best is None else best[0].value
            if part.weight > 0.0 and part.bound >= value * (1.0 - RELATIVE_TOLERANCE):
                part.closed = True
            elif not inquiry.is_over:
                _search_part(part, best, inquiry, share=_share(len(waiting) - place))


def _share(waiting_count: int) -> float:
    """Return twice a fair share of the time left: most parts need none of theirs."""
    return min(2.0 / (waiting_count + 1), 1.0)


def _search_part(part: _Part, best: _Best | None, inquiry: Inquiry, *, share: float) -> None:
    cutoff = _cutoff_seconds(part, best)
    answer = inquiry.search(part.request, cutoff_seconds=cutoff, share_ratio=share)
    if isinstance(answer, Found):
        if part.found is None or answer.step_seconds < part.found.step_seconds:
            part.found = answer
        part.bound_seconds = max(part.bound_seconds, answer.certificate.lower_bound_seconds)
        part.closed = answer.certificate.status == "optimal"
    elif answer.proven:
        part.bound_seconds = max(part.bound_seconds, cutoff)
        part.closed = True
    else:
        part.bound_seconds = max(part.bound_seconds, min(answer.lower_bound_seconds, cutoff))


def _cutoff_seconds(part: _Part, best: _Best | None) -> float:
    """Return the step under which a plan on the part would be the best, inf if any would.

    Where the part is free, any plan beats one that is not, and the faster beats the slower.
    """
    if best is None:
        return _INFINITE
    known, found = best
    if part.weight > 0.0:
        return known.value / part.weight
    return found.step_seconds if known.weight <= 0.0 else _INFINITE


def _best(parts: Sequence[_Part]) -> _Best | None:
    """Return the plan of least value and its part; the faster, then the smaller, of equals."""
    known = [(part, part.found) for part in parts if part.found is not None]
    least = min((part.value for part, _ in known), default=0.0) * (1.0 + RELATIVE_TOLERANCE)
    equals = [(part, found) for part, found in known if part.value <= least]
    order = sorted(equals, key=lambda one: (one[1].step_seconds, one[0].device_count))
    return order[0] if order else None


def _first_fitting(parts: Sequence[_Part], inquiry: Inquiry) -> _Part | None:
    """Return the first part on which a plan is found; parts proven to have none are closed."""
    for place, part in enumerate(parts):
        share = _FIRST_SHARE * _share(len(parts) - place)
        answer = inquiry.search(part.request, is_any_welcome=True, share_ratio=share)
        if isinstance(answer, Found):
            part.found = answer
            part.bound_seconds = answer.certificate.lower_bound_seconds
            return part
        part.closed = answer.proven
    return None


def _with_step_bound(best: _Part, found: Found, *, rivals: Sequence[_Part] = ()) -> Found:
    """Return the plan of `best` with what all its searches have proven of its step.

    With rivals, what is proven holds on all of them.
    """
    step = found.step_seconds
    open_parts = [part for part in (best, *rivals) if not part.closed]
    bound = min([step, *(part.bound_seconds for part in open_parts)])
    own = step if best.closed else min(best.bound_seconds, step)
    certificate = found.certificate.model_copy(
        update={"lower_bound_seconds": bound, "gap_ratio": 1.0 - bound / step}
    )
    runners_up = tuple(
        replace(other, step_seconds=max(other.step_seconds, own)) for other in found.runners_up
    )
    return replace(found, certificate=certificate, runners_up=runners_up)


def _attained(request: Request, found: Found, *, objective_bound: float) -> Attained:
    """Return the plan with a certificate whose gap is the wider of step's and objective's."""
    value = _value_of(request, found)
    bound = min(objective_bound, value)
    objective_gap = 1.0 - bound / value if value > 0.0 else 0.0
    step_gap = max(0.0, 1.0 - found.certificate.lower_bound_seconds / found.step_seconds)
    gap = max(step_gap, objective_gap)
    proven = gap <= RELATIVE_TOLERANCE
    changes = {
        "status": "optimal" if proven else "feasible",
        "gap_ratio": 0.0 if proven else gap,
        "objective": request.job.resolved.objective,
        "objective_value": value,
        "objective_lower_bound": value if proven else bound,
    }
    certificate: Certificate = found.certificate.model_copy(update=changes)
    return Attained(request=request, found=replace(found, certificate=certificate))


def _value_of(request: Request, found: Found) -> float:
    if request.job.resolved.objective is Objective.THROUGHPUT:
        return found.step_seconds
    prediction = solution(request, found).prediction
    return objective_value(request.job.resolved.objective, prediction, request.cluster.resolved)


def _least_step_seconds(request: Request) -> float:
    """Return model FLOPs / peak rate: no product is priced faster than the device's peak."""
    job = request.job.resolved
    length = job.sequence_length or 1
    tokens = (job.global_batch_size or 1) * length
    flop = tokens * needed_flop_per_token(request.workload, job, length)
    peak = request.hardware.peak_flop_per_second(job)
    return flop / peak * (1.0 - RELATIVE_TOLERANCE)


def part_requests(request: Request) -> list[Request]:
    """Return the request on every part of its cluster that goes with the cluster's own levels."""
    found = []
    for part in subclusters(request.cluster.resolved, limit=PART_LIMIT):
        try:
            found.append(_on_part(request, part))
        except InputError:
            if part == request.cluster.resolved:
                raise
    return found


def _on_part(request: Request, part: Cluster) -> Request:
    """Return the request on `part`, still with the job and the cluster that were given."""
    return replace(
        with_cluster(request, part),
        cluster=cluster_document(request.cluster.given, part, request.cluster.assumptions),
        job=request.job,
        assumptions=request.assumptions,
    )


def _with_words(request: Request, chosen: Request, words: str) -> Request:
    """Return `chosen` with an assumption that says which part of the cluster it uses."""
    whole, part = request.cluster.resolved, chosen.cluster.resolved
    if part == whole:
        return chosen
    used = {group.name: group for group in part.node_groups}
    shares = ", ".join(_nodes_used(group, used.get(group.name)) for group in whole.node_groups)
    return replace(chosen, assumptions=(*chosen.assumptions, f"uses {shares}: {words}"))


def _nodes_used(group: NodeGroup, used: NodeGroup | None) -> str:
    if used is None:
        return f"no node of group {group.name}"
    if used.devices_per_node < group.devices_per_node:
        return (
            f"{used.devices_per_node} of {group.devices_per_node} devices of one node of group "
            f"{group.name}"
        )
    return f"{used.node_count} of {group.node_count} nodes of group {group.name}"
