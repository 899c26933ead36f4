"""Problem: what a search is asked, what it may take, and what it answers.

What takes time is counted where it is done (sets of layers, cells of dynamic programs), in units
of about a microsecond of one core (`Effort`). Counts are the same on every machine and under any
load. The deadline is the job's own limit: past it everything ends, and what is known by then is the
answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from planner.cost.configuration import Configuration
from planner.hardware import ClusterHardware
from planner.schema.bound_record import BoundEngine
from planner.schema.job import Job
from planner.schema.model import ModelGraph
from planner.schema.plan import Certificate
from planner.schema.strategy import Strategy
from planner.workload.layer import ModelWorkload

if TYPE_CHECKING:
    from planner.ilp.instance import Assignment
    from planner.ilp.pricing import PricedSpace


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A resolved job on a cluster, with the model's workload.

    Its `space` is there where it is known from another search of the same, but for its time.
    """

    graph: ModelGraph
    workload: ModelWorkload
    hardware: ClusterHardware
    job: Job
    space: PricedSpace | None = None


DEGREES = (
    "tensor_parallel_degree",
    "pipeline_parallel_degree",
    "context_parallel_degree",
    "expert_parallel_degree",
)


class Enough(NamedTuple):
    """Up to which step a search has to be complete, and whether it leaves the last programs."""

    seconds: float
    leaves_programs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """How many plans are wanted, each the best of those that have the same in what is named.

    `settle` is called with each group's best plan once that is proven, and with the best of all
    once some of the time is over. It returns the step up to which the search has to be complete
    from then on, which is `enough_seconds` at first. The group that has `known` of what is named is
    not searched.
    """

    count: int = 1
    by: tuple[str, ...] = DEGREES
    settle: Callable[[Group], Enough] | None = None
    enough_seconds: float = float("inf")
    known: tuple[object, ...] | None = None


class TooManyError(Exception):
    """More to look at than is worth it, or than the effort allows."""


@dataclass(slots=True, kw_only=True)
class Effort:
    """At most so many units of work, and nothing past the deadline (of `time.perf_counter`).

    What is spent of a part is spent of the `whole` as well.
    """

    most: float = float("inf")
    deadline: float = float("inf")
    spent: float = 0.0
    whole: Effort | None = None

    def spend(self, units: float) -> None:
        """Count some work."""
        self.spent += units
        if self.whole is not None:
            self.whole.spend(units)

    @property
    def is_over(self) -> bool:
        """Return whether nothing may be done any more."""
        return self.spent >= self.most or self.is_late

    @property
    def is_late(self) -> bool:
        """Return whether the deadline is over."""
        return time.perf_counter() > self.deadline

    def check(self) -> None:
        """Raise TooManyError where nothing may be done any more."""
        if self.is_over:
            raise TooManyError

    def part(self, most: float) -> Effort:
        """Return an effort for some of the work, with the same deadline."""
        return Effort(most=most, deadline=self.deadline, whole=self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A bound and a plan.

    No plan of the configuration, the one that is returned included, is below `bound_seconds`, which
    is the limit at most. The plan is the best that this turn has found below the limit. Where the
    engine `is_done` no other is below the bound's own plan or the limit; where it `is_stuck`
    another turn of it says no more.
    """

    bound_seconds: float
    assignment: Assignment | None
    is_done: bool
    is_stuck: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A configuration with its best step, or with a bound that its best step cannot beat."""

    configuration: Configuration
    step_seconds: float
    is_lower_bound: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The best strategy of a group.

    `even` is one of its configuration whose virtual stages wait little for one another, where ranks
    hold several that differ: its closed form is no shorter, but its simulated step may be.
    """

    strategy: Strategy
    step_seconds: float
    even: Strategy | None = None


ONE_GROUP = Groups()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The best strategy with its certificate, and the best of other degrees.

    `groups` are as many as were asked for, best first; the first is the strategy itself. No plan of
    other groups is below `left_seconds`, the least bound of what was left, inf where nothing was.
    `engines` are those that bounded some configurations last, by name.
    """

    strategy: Strategy
    step_seconds: float
    certificate: Certificate
    runners_up: tuple[Candidate, ...]
    groups: tuple[Group, ...] = ()
    left_seconds: float = 0.0
    engines: Mapping[Configuration, BoundEngine] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """The least memory that a configuration needs for its fullest device, against what there is.

    Both are of the device's own memory where that is exceeded. `exceeds_device` is false where it
    would do, but only with more host memory: both are of the device's share of that then.
    """

    configuration: Configuration
    required_bytes: float
    capacity_bytes: float
    exceeds_device: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFound:
    """No plan: nothing legal, nothing that fits, or no time to find one.

    `proven` says that no configuration of the space has a plan (within the cutoff, where there was
    one); otherwise the time ran out, and `lower_bound_seconds` is what no plan can beat.
    """

    configurations_total: int
    refused: dict[str, int]
    shortfalls: tuple[Shortfall, ...]
    proven: bool
    lower_bound_seconds: float = 0.0
    engines: Mapping[Configuration, BoundEngine] = field(default_factory=dict)


SearchResult = Found | NotFound
