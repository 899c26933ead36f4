"""State: what a search knows besides the keys of its frontier."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from planner.cost.configuration import Choice, Configurations
from planner.cost.priced import PriceList
from planner.ilp.bounds import ObjectiveBounds
from planner.ilp.branching import Branching
from planner.ilp.frontier import Frontier
from planner.ilp.instance import Assignment
from planner.ilp.placing import Placing
from planner.ilp.pricing import Pricing
from planner.ilp.problem import Problem
from planner.ilp.sharpening import Tables
from planner.ilp.solver import SolverName


@dataclass(slots=True, kw_only=True)
class State:
    """Bounds and tables hold for plans below the limit at the time they were found.

    `step` is how far above its key a configuration is solved next, `patience` for how long;
    `too_far` is how often too many patterns were to be enumerated, `in_vain` the last cutoff where
    they were, `spent` the seconds of it;
    `branchings` are those that are not at their end, `turns` how often a configuration was solved,
    and `branched` how often so in vain; `stalled` are those whose last branching was. `climbed`
    are those whose cuts were made better by steps, `tried` those that the heuristic was
    asked about. `screened` have a bound with memory, `screens_below_limit` is how many screens
    had a limit, `dived_to` the least bound looked into as soon as it was screened, `bounded` how
    many were bounded by themselves, `scouting_at` when to look for good plans out of turn, and
    `has_scouted` whether that was done.
    `annealing_seconds` is what was spent on annealing cuts, `refused_cuts` where the best relaxed
    plans are cut that do not fit. `crowded` are the limits below which
    configurations were bounded with others, `price_lists` what layers cost under some of them.
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
    exact: set[int] = field(default_factory=set)
    solved: set[int] = field(default_factory=set)
    stalled: set[int] = field(default_factory=set)
    climbed: set[int] = field(default_factory=set)
    tried: set[int] = field(default_factory=set)
    step: dict[int, float] = field(default_factory=dict)
    patience: dict[int, float] = field(default_factory=dict)
    bounds: dict[int, ObjectiveBounds] = field(default_factory=dict)
    tables: dict[int, Tables] = field(default_factory=dict)
    too_far: dict[int, int] = field(default_factory=dict)
    in_vain: dict[int, float] = field(default_factory=dict)
    spent: dict[int, float] = field(default_factory=dict)
    branchings: dict[int, Branching | Placing] = field(default_factory=dict)
    turns: dict[int, int] = field(default_factory=dict)
    branched: dict[int, int] = field(default_factory=dict)
    screened: list[int] = field(default_factory=list)
    screens_below_limit: int = 0
    dived_to: float = float("inf")
    bounded: int = 0
    scouting_at: int = 2
    has_scouted: bool = False
    milp_count: int = 0
    annealing_seconds: float = 0.0
    refused_cuts: dict[int, tuple[int, ...]] = field(default_factory=dict)
    crowded: dict[int, float] = field(default_factory=dict)
    price_lists: dict[int, PriceList] = field(default_factory=dict)

    def leave_open(self, index: int, refused: Assignment) -> None:
        """Take note that the best plan of a configuration does not fit, and of where it is cut."""
        self.frontier.leave_open(index)
        self.refused_cuts[index] = refused.cuts

    def is_close_enough(self, key: float) -> bool:
        """Return whether no plan, from `key` or left, is better by more than the job accepts."""
        accepted = self.problem.job.limits.accepted_gap_ratio
        if accepted <= 0.0 or not self.frontier.best:
            return False
        least = min(key, self.frontier.least_left())
        return least >= self.frontier.limit_seconds() * (1.0 - accepted)

    @property
    def seconds_left(self) -> float:
        """Return the seconds until the job's limit."""
        limit = self.problem.job.limits.solver_seconds
        return limit - (time.perf_counter() - self.started)

    @property
    def is_half_over(self) -> bool:
        """Return whether half of the job's limit has passed."""
        return self.seconds_left < 0.5 * self.problem.job.limits.solver_seconds
