"""Frontier: the plans among which step seconds, peak memory and cost have to be traded.

Epsilon-constraint method (Haimes, Lasdon and Wismer 1971): of every part of the cluster, the
fastest plan under each of several caps on device memory. Each is a search with its own proof. On a
given part of the cluster cost is proportional to the step, so cost is traded by the part that is
used. What another point beats, or equals, in all three is dropped. Of each point that is left the
simplest plan within the job's tolerance is taken; then what another beats with no more techniques
is dropped. The end of least memory is the whole cluster's plan of least peak
(`planner.answers.least_memory`); between caps there may be other plans.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from planner.answers.explain import describe_strategy
from planner.answers.finalists import fastest_plan, with_simulated_step
from planner.answers.least_memory import leanest
from planner.ilp.problem import NotFound
from planner.requests.inquiry import Inquiry, Solution, solution
from planner.requests.resolution import Request
from planner.requests.subclusters import subclusters
from planner.requests.variation import with_cluster, with_peak_cap
from planner.schema.cluster import Cluster
from planner.schema.frontier import (
    AlternativePlan,
    Frontier,
    FrontierPoint,
    NodeShare,
    SkippedNodes,
)
from planner.space.complexity import complexity
from planner.version import planner_version

_FLOOR_SEARCHES = 5
_FIRST_PARTS = 4
_BELOW = 1.0 - 1e-6
_EQUAL = 1e-9
_END_SHARE_RATIO = 0.25
_SIMPLIFIED_SHARE_RATIO = 0.2
"""Of the time, to look for the simplest plan of each point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capped:
    """The fastest plan of one part of the cluster under one cap on the peak of its devices."""

    cluster: Cluster
    cap_bytes: float | None
    solution: Solution


@dataclass(slots=True, kw_only=True)
class _Found:
    """What was found on parts of the cluster, and where nothing was."""

    found: list[Capped] = field(default_factory=list)
    skipped: list[SkippedNodes] = field(default_factory=list)

    def add(self, answer: Solution | NotFound, part: Cluster, cap_bytes: float | None) -> bool:
        """Take the answer for one part under one cap; return whether it is a plan."""
        if isinstance(answer, NotFound):
            self.skipped.append(_skipped(part, cap_bytes, proven=answer.proven))
            return False
        self.found.append(Capped(cluster=part, cap_bytes=cap_bytes, solution=answer))
        return True


@dataclass(slots=True, kw_only=True)
class _Sweep(_Found):
    """A sweep over caps and parts."""

    request: Request
    inquiry: Inquiry
    point_count: int
    part_count: int
    done: int = 0
    least_peak_bound_bytes: float | None = None

    @property
    def total(self) -> int:
        """Return the points of all parts."""
        return self.part_count * self.point_count

    def advance(self, points: int = 1) -> None:
        self.done += points
        self.inquiry.tell("points", self.done, self.total)


def frontier(
    request: Request,
    *,
    inquiry: Inquiry,
    point_count: int = 8,
    alternatives: tuple[AlternativePlan, ...] = (),
    other_choices: tuple[AlternativePlan, ...] = (),
) -> Frontier:
    """Return the Pareto front of `request`, with up to `point_count` memory caps for every part.

    The largest parts come first with all their caps: time may not be enough for every part.

    Raises:
        SolverError: if the solver fails.
        VerificationError: if a plan does not survive its own recomputation.
    """
    parts = subclusters(request.cluster.resolved)
    sweep = _Sweep(request=request, inquiry=inquiry, point_count=point_count, part_count=len(parts))
    with inquiry.leaving(_SIMPLIFIED_SHARE_RATIO):
        for some in (parts[:_FIRST_PARTS], parts[_FIRST_PARTS:]):
            _add_points(sweep, some)
    points = [(capped,) for capped in _undominated(sweep.found, _values)]
    kept = _undominated(list(inquiry.each(_simplified, points)), _values_and_techniques)
    return Frontier(
        status=_status(sweep, kept),
        model=request.model,
        cluster=request.cluster,
        job=request.job,
        points=tuple(_point(capped) for capped in kept),
        alternatives=alternatives,
        other_choices=other_choices,
        skipped=tuple(sweep.skipped),
        search_count=inquiry.search_count,
        dominated_count=len(sweep.found) - len(kept),
        least_peak_bound_bytes=sweep.least_peak_bound_bytes,
        planner_version=planner_version(),
    )


def _add_points(sweep: _Sweep, parts: Sequence[Cluster]) -> None:
    """Add the plans of some parts of the cluster, under all caps."""
    fastest = _add_fastest(sweep, parts)
    if sweep.point_count > 1:
        if fastest and fastest[0].cluster == sweep.request.cluster.resolved:
            _add_leanest(sweep, fastest[0])
        _add_lower_caps(sweep, fastest)


def _values(point: Capped) -> tuple[float, ...]:
    """Return what is to be small: step, peak, cost."""
    found = point.solution
    cost = found.prediction.cost_per_million_tokens or 0.0
    return found.step_seconds, found.peak_memory_bytes, cost


def _values_and_techniques(point: Capped) -> tuple[float, ...]:
    """Return the same, and how many techniques the plan has."""
    return *_values(point), complexity(point.solution.strategy)


def _undominated(
    points: Sequence[Capped], values: Callable[[Capped], tuple[float, ...]]
) -> tuple[Capped, ...]:
    """Return the points that no other is as good as in all values, fastest first."""
    ranked = sorted(points, key=lambda point: (*values(point), point.cluster.device_count))
    kept: list[Capped] = []
    for point in ranked:
        if not any(_as_good(values(better), values(point)) for better in kept):
            kept.append(point)
    return tuple(kept)


def _as_good(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(a <= b * (1.0 + _EQUAL) for a, b in zip(one, other, strict=True))


def _status(sweep: _Sweep, kept: Sequence[Capped]) -> Literal["complete", "partial", "infeasible"]:
    if any(skipped.reason == "out_of_time" for skipped in sweep.skipped):
        return "partial"
    return "complete" if kept else "infeasible"


def _add_fastest(sweep: _Sweep, parts: Sequence[Cluster]) -> list[Capped]:
    """Add the fastest plan of each part without a cap, or why there is none; return the plans."""
    already = len(sweep.found)
    requests = [(with_cluster(sweep.request, part),) for part in parts]
    for part, answer in zip(parts, sweep.inquiry.in_turn(fastest_plan, requests), strict=True):
        sweep.advance(1 if sweep.add(answer, part, None) else sweep.point_count)
    return sweep.found[already:]


def _add_lower_caps(sweep: _Sweep, starts: Sequence[Capped]) -> None:
    parts = ((start, sweep.point_count - 1, sweep.done, sweep.total) for start in starts)
    for lower in sweep.inquiry.in_turn(_lower_caps, parts):
        sweep.found += lower.found
        sweep.skipped += lower.skipped
        sweep.advance(sweep.point_count - 1)


def _lower_caps(
    start: Capped, cap_count: int, done: int, total: int, *, inquiry: Inquiry
) -> _Found:
    """Solve the part again under lower and lower caps, from the fastest plan's peak downwards.

    The caps are spread evenly between that peak and the least at which something was found to fit.
    A cap that the last plan keeps anyway need not be solved: that plan is its optimum too.
    """
    request, lower, last = start.solution.request, _Found(), start
    floor = _floor_bytes(start, inquiry)
    caps = _caps(start.solution.peak_memory_bytes, floor, cap_count)
    for place, cap in enumerate(caps, start=1):
        if last.solution.peak_memory_bytes > cap:
            answer = fastest_plan(with_peak_cap(request, cap), inquiry=inquiry)
            if lower.add(answer, start.cluster, cap):
                last = lower.found[-1]
        inquiry.tell("points", done + place, total)
    return lower


def _add_leanest(sweep: _Sweep, whole: Capped) -> None:
    """Add the plan of least peak on all nodes, the end of the front.

    What no plan's peak there is under is noted, as far as it was proven.
    """
    answer = sweep.inquiry.elsewhere(_leanest, whole.solution.request)
    if answer is not None:
        found, sweep.least_peak_bound_bytes = answer
        sweep.add(found, whole.cluster, found.peak_memory_bytes)


def _leanest(request: Request, *, inquiry: Inquiry) -> tuple[Solution, float] | None:
    """Return the plan of least peak and the bound of all peaks, found in a share of the time."""
    seconds = inquiry.seconds_left * _END_SHARE_RATIO
    own = replace(inquiry, deadline=time.perf_counter() + seconds, share_ratio=1.0, search_count=0)
    answer = leanest(request, inquiry=own)
    inquiry.search_count += own.search_count
    if isinstance(answer, NotFound):
        return None
    return with_simulated_step(solution(request, answer.found)), answer.bound_bytes


def _caps(peak: float, floor: float, count: int) -> Iterator[float]:
    """Yield `count` caps, evenly spaced, the first below `peak` and the last `floor`."""
    for index in range(1, count + 1):
        yield peak - (peak - floor) * index / count


def _floor_bytes(start: Capped, inquiry: Inquiry) -> float:
    """Return a cap at which something fits, close to the least there is, by halving."""
    low, high = 0.0, start.solution.peak_memory_bytes * _BELOW
    fitting = high
    for _ in range(_FLOOR_SEARCHES):
        middle = (low + high) / 2.0
        if inquiry.fits(with_peak_cap(start.solution.request, middle)):
            fitting = high = middle
        else:
            low = middle
    return fitting


def _skipped(part: Cluster, cap_bytes: float | None, *, proven: bool) -> SkippedNodes:
    return SkippedNodes(
        node_groups=node_shares(part),
        device_count=part.device_count,
        memory_cap_bytes=cap_bytes,
        reason="infeasible" if proven else "out_of_time",
    )


def node_shares(cluster: Cluster) -> tuple[NodeShare, ...]:
    """Return which nodes `cluster` has, for an answer about a part of a larger one."""
    return tuple(
        NodeShare(
            name=group.name,
            device=group.device,
            node_count=group.node_count,
            devices_per_node=group.devices_per_node,
        )
        for group in cluster.node_groups
    )


def _simplified(capped: Capped, *, inquiry: Inquiry) -> Capped:
    """Return the simplest plan within the job's tolerance of the point's, under the same cap."""
    return replace(capped, solution=inquiry.simplified(capped.solution))


def _point(capped: Capped) -> FrontierPoint:
    found = capped.solution
    job = found.request.job.resolved
    tokens = (job.global_batch_size or 0) * (job.sequence_length or 0)
    return FrontierPoint(
        description=describe_strategy(found.strategy),
        node_groups=node_shares(capped.cluster),
        device_count=capped.cluster.device_count,
        step_seconds=found.step_seconds,
        simulated_step_seconds=found.simulated_step_seconds,
        peak_memory_bytes=found.peak_memory_bytes,
        cost_per_million_tokens=found.prediction.cost_per_million_tokens,
        tokens_per_second=tokens / found.step_seconds,
        memory_cap_bytes=capped.cap_bytes,
        strategy=found.strategy,
        certificate=found.certificate,
    )
