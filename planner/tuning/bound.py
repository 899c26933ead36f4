"""Bound: what no plan that was not tried is likely to be faster than.

The search proves, for each group of degrees that it found the best plan of, that no plan of the
group is predicted (p50) to be faster, and a bound for all others. How far p10 may lie below p50 in
a group is at most what it is for the configuration of which least is known:

    p10 >= p50 exp(-z r sqrt(t^2 + n^2))

with r what trials say of how far layouts differ (`planner.tuning.spread`), t the largest deviation
that earlier runs leave of what is shared, over the configurations of the group, and n a plan's own
(`planner.cost.intervals`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Booleans, Configurations, Floats
from planner.cost.intervals import (
    P90_DEVIATIONS,
    own_deviation,
    shared_deviation,
    spread_ratio,
)
from planner.cost.learnt import Points, learnt_by, points_of
from planner.hardware import DeviceHardware
from planner.ilp.problem import DEGREES, Found
from planner.requests.resolution import Request
from planner.schema.strategy import Strategy
from planner.space.degrees import enumerate_configurations
from planner.space.frameworks import framework_limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """No plan of the space has a p50 below `lower_seconds`, or a p10 below `optimistic_seconds`.

    Of no plan is p50 more than `widest_ratio` times p10.
    """

    lower_seconds: float
    optimistic_seconds: float
    widest_ratio: float
    configurations_total: int


def bound_of(request: Request, found: Found, *, group_count: int) -> Bound:
    """Return what a search of `request` for the best plans of `group_count` groups proves."""
    widths = _Widths.of(request)
    left = found.left_seconds
    ends = [
        min(group.step_seconds, left) * math.exp(-widths.of_group(group.strategy))
        for group in found.groups
    ]
    # All groups that are not among those found are pruned against the last of them.
    last = found.groups[-1].step_seconds if len(found.groups) == group_count else math.inf
    ends.append(min(left, last) * math.exp(-widths.widest()))
    return Bound(
        lower_seconds=found.certificate.lower_bound_seconds,
        optimistic_seconds=min(ends),
        widest_ratio=math.exp(widths.widest()),
        configurations_total=found.certificate.configurations_total,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Widths:
    """Half widths of steps' intervals in logarithms, at most, of each part of a space."""

    parts: tuple[Configurations, ...]
    widths: tuple[Floats, ...]

    @staticmethod
    def of(request: Request) -> _Widths:
        parts = tuple(_parts(request))
        return _Widths(parts=parts, widths=tuple(_widths(request, part) for part in parts))

    def widest(self) -> float:
        """Return the largest of the whole space."""
        return max((float(width.max()) for width in self.widths), default=0.0)

    def of_group(self, strategy: Strategy) -> float:
        """Return the largest of the configurations with the degrees of `strategy`."""
        own = [
            float(width[chosen].max())
            for part, width in zip(self.parts, self.widths, strict=True)
            if (chosen := _same_degrees(part, strategy)).any()
        ]
        return max(own, default=self.widest())


def _same_degrees(part: Configurations, strategy: Strategy) -> Booleans:
    alike = [getattr(part, name) == getattr(strategy, name) for name in DEGREES]
    return np.asarray(np.logical_and.reduce(alike))


def _parts(request: Request) -> Iterator[Configurations]:
    """Yield the configurations of each part of the space that is searched."""
    graph, job = request.model.resolved, request.job.resolved
    for limits in framework_limits(job, graph):
        space = enumerate_configurations(
            graph, request.hardware, job.model_copy(update={"limits": limits})
        )
        if len(space.configurations):
            yield space.configurations


def _widths(request: Request, part: Configurations) -> Floats:
    """Return the half width of each configuration, of the kind of device with the widest."""
    each = [_widths_on(request, kind, part) for kind in request.hardware.kinds]
    return np.asarray(np.max(each, axis=0))


def _widths_on(request: Request, kind: DeviceHardware, part: Configurations) -> Floats:
    job = request.job.resolved
    deviation, own = shared_deviation(request.workload, kind, job), own_deviation(kind, job)
    variances = np.full(len(part), deviation**2)
    learnt = learnt_by(job)
    if learnt is not None:
        points = points_of(request.workload, kind, job, configurations=part)
        sizes, whose = np.unique(points.sizes, axis=0, return_inverse=True)
        few = Points(sizes=sizes, kinds=points.kinds[: len(sizes)])
        left = learnt.covariance(few, deviation=deviation)
        variances = np.maximum(np.diag(left), 0.0)[whose.ravel()]
    return np.asarray(P90_DEVIATIONS * spread_ratio(job) * np.sqrt(variances + own**2))
