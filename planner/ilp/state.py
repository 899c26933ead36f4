"""State: what a search knows besides the keys of its frontier."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from planner.cost.configuration import Choice, Configurations
from planner.cost.priced import PriceList
from planner.ilp.branching import Branching
from planner.ilp.effort import Effort
from planner.ilp.frontier import Frontier
from planner.ilp.pricing import Pricing
from planner.ilp.problem import Problem
from planner.ilp.solver import SolverName


@dataclass(slots=True, kw_only=True)
class State:
    """One search, by configuration where it is about one.

    `branchings` are how far each was branched on, None where it has too many loads for that or
    branching can say no more; `turns` how many turns it had; `refused_cuts` where the best relaxed
    plan is cut that does not fit; `programmed` for which a program was solved. `crowded` are the
    limits below which configurations were bounded with others, `price_lists` what layers cost under
    some. `screens` is how many screens had a limit, `dived_to` the least bound looked into as soon
    as it was screened, `bounded` how many were bounded by themselves.
    """

    problem: Problem
    configurations: Configurations
    pricing: Pricing
    frontier: Frontier
    solver: SolverName
    started: float
    choices: tuple[Choice, ...]
    edges: tuple[Choice, ...]
    not_searched: tuple[str, ...] = ()
    branchings: dict[int, Branching | None] = field(default_factory=dict)
    turns: dict[int, int] = field(default_factory=dict)
    programmed: set[int] = field(default_factory=set)
    refused_cuts: dict[int, tuple[int, ...]] = field(default_factory=dict)
    crowded: dict[int, float] = field(default_factory=dict)
    price_lists: dict[int, PriceList] = field(default_factory=dict)
    screens: int = 0
    dived_to: float = float("inf")
    bounded: int = 0
    milp_count: int = 0

    def is_close_enough(self, key: float) -> bool:
        """Return whether no plan, from `key` or left, is better by more than the job accepts."""
        accepted = self.problem.job.limits.accepted_gap_ratio
        if accepted <= 0.0 or not self.frontier.best:
            return False
        least = min(key, self.frontier.least_left())
        return least >= self.frontier.limit_seconds() * (1.0 - accepted)

    def effort(self, units: float) -> Effort:
        """Return an effort of so much work within the job's limit of time."""
        return Effort(most=units, deadline=self.deadline)

    @property
    def deadline(self) -> float:
        """Return when the job's limit is over (of `time.perf_counter`)."""
        return self.started + self.problem.job.limits.solver_seconds

    @property
    def seconds_left(self) -> float:
        """Return the seconds until the job's limit."""
        return self.deadline - time.perf_counter()

    @property
    def is_half_over(self) -> bool:
        """Return whether half of the job's limit has passed."""
        return self.seconds_left < 0.5 * self.problem.job.limits.solver_seconds
