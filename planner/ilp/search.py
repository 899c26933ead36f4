"""Search: the best plan over all configurations, with proof.

Configurations wait in a heap, keyed by a lower bound of their step: first the quick bound, then the
bound with memory, then what a solve below a cutoff has proven. The least key is always the next to
be refined, and the search ends when it is no less than the best plan known: nothing left can beat
it. A solve's cutoff is a little above the key; when nothing lies below it, the cutoff becomes the
key and the next one is further.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from planner.cost.configuration import Choice, Configuration
from planner.hardware import ClusterHardware
from planner.ilp.bounds import least_memory_bytes, memory_bound
from planner.ilp.extract import strategy_of
from planner.ilp.heuristic import heuristic_counts
from planner.ilp.instance import Counts
from planner.ilp.optimise import optimise
from planner.ilp.pricing import Pricing
from planner.ilp.problem import Problem
from planner.ilp.result import Candidate, Found, NotFound, SearchResult, Shortfall
from planner.ilp.solver import SolverName, Status, default_solver
from planner.schema.plan import Certificate
from planner.schema.progress import Progress
from planner.space.choices import block_choices, edge_choices
from planner.space.degrees import enumerate_configurations

ProgressCallback = Callable[[Progress], None]

PROOF_TOLERANCE = 1e-9
_FIRST_STEP = 0.02
_STEP_GROWTH = 3.0
_RUNNERS_UP = 4
_SHORTFALLS = 5
_PROGRESS_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best plan known."""

    index: int
    step_seconds: float
    counts: Counts


@dataclass(slots=True, kw_only=True)
class _State:
    """What the search knows: `keys` are the best lower bounds by configuration."""

    pricing: Pricing
    rows: Sequence[Configuration]
    solver: SolverName
    deadline: float
    keys: list[float]
    exact: set[int] = field(default_factory=set)
    solved: set[int] = field(default_factory=set)
    step: dict[int, float] = field(default_factory=dict)
    bounded: set[int] = field(default_factory=set)
    heap: list[tuple[float, int]] = field(default_factory=list)
    best: Best | None = None
    milp_count: int = 0

    @property
    def best_seconds(self) -> float:
        return float("inf") if self.best is None else self.best.step_seconds

    def offer(self, index: int, step_seconds: float, counts: Counts) -> None:
        if step_seconds < self.best_seconds:
            self.best = Best(index=index, step_seconds=step_seconds, counts=counts)

    def push(self, index: int, key: float) -> None:
        self.keys[index] = max(self.keys[index], key)
        if np.isfinite(key):
            heapq.heappush(self.heap, (self.keys[index], index))


def search(
    problem: Problem,
    *,
    on_progress: ProgressCallback | None = None,
    solver: SolverName | None = None,
    stop_at_first: bool = False,
) -> SearchResult:
    """Return the fastest strategy of the job's space with its certificate, or what is missing.

    The same request gives the same answer, but for what a time limit cuts short. Whoever only asks
    whether anything fits stops at the first plan.

    Raises:
        SolverError: if the solver fails.
    """
    started = time.perf_counter()
    job, hardware = problem.job, problem.hardware
    space = enumerate_configurations(problem.graph, hardware, job)
    choices, edges = block_choices(job.limits), edge_choices(job.limits)
    if not space.rows:
        return NotFound(configurations_total=0, refused=space.refused, shortfalls=(), proven=True)
    pricing = Pricing(problem, rows=space.rows, choices=choices, edges=edges)
    state = _State(
        pricing=pricing,
        rows=space.rows,
        solver=solver or default_solver(),
        deadline=started + job.limits.solver_seconds,
        keys=[float(bound) for bound in pricing.quick_bounds()],
    )
    state.heap = [(key, index) for index, key in enumerate(state.keys)]
    heapq.heapify(state.heap)
    lower_bound = _refine(state, on_progress, stop_at_first=stop_at_first)
    if state.best is None:
        missing = () if stop_at_first else _shortfalls(state)
        return NotFound(
            configurations_total=len(state.rows),
            refused=space.refused,
            shortfalls=missing,
            proven=not state.heap,
        )
    seconds = time.perf_counter() - started
    return _found(state, lower_bound, seconds, hardware=hardware, choices=choices, edges=edges)


def _refine(state: _State, on_progress: ProgressCallback | None, *, stop_at_first: bool) -> float:
    """Refine the least key until nothing can beat the best plan; return the lower bound."""
    told = 0.0
    while state.heap:
        key, index = heapq.heappop(state.heap)
        if key >= state.best_seconds * (1.0 - PROOF_TOLERANCE):
            heapq.heappush(state.heap, (key, index))
            return min(key, state.best_seconds)
        now = time.perf_counter()
        if now > state.deadline or (stop_at_first and state.best is not None):
            heapq.heappush(state.heap, (key, index))
            return key
        if on_progress is not None and now - told > _PROGRESS_SECONDS:
            told = now
            on_progress(_progress(state, key))
        if index in state.bounded:
            _solve(state, index)
        else:
            _bound(state, index)
    return state.best_seconds


def _progress(state: _State, key: float) -> Progress:
    return Progress(
        phase="solve" if state.milp_count else "bound",
        configurations_total=len(state.rows),
        open_count=len(state.heap) + 1,
        milp_count=state.milp_count,
        best_seconds=None if state.best is None else state.best.step_seconds,
        lower_bound_seconds=key,
    )


def _bound(state: _State, index: int) -> None:
    """Replace the quick bound by the one with memory, and try the heuristic if that may help."""
    state.bounded.add(index)
    instance = state.pricing.instance(index)
    bound = memory_bound(instance)
    if not np.isfinite(bound):
        state.keys[index] = float("inf")
        return
    if bound < state.best_seconds:
        tried = heuristic_counts(instance)
        if tried is not None:
            state.offer(index, *tried)
    state.push(index, bound)


def _solve(state: _State, index: int) -> None:
    """Look for a plan of the configuration below a cutoff; its key rises if there is none."""
    instance = state.pricing.instance(index)
    step = state.step.get(index, _FIRST_STEP)
    key = state.keys[index]
    reach = key * (1.0 + step) if step < 100.0 else float("inf")
    cutoff = min(reach, state.best_seconds)
    state.milp_count += 1
    state.solved.add(index)
    optimum = optimise(
        instance,
        cutoff_seconds=cutoff if np.isfinite(cutoff) else None,
        solver=state.solver,
        seconds=max(state.deadline - time.perf_counter(), 0.05),
    )
    if optimum.counts is not None and optimum.step_seconds is not None:
        state.offer(index, optimum.step_seconds, optimum.counts)
    if optimum.status is Status.OPTIMAL and optimum.step_seconds is not None:
        state.keys[index] = max(key, optimum.step_seconds)
        state.exact.add(index)
    elif optimum.status is Status.INFEASIBLE:
        state.step[index] = step * _STEP_GROWTH
        state.push(index, cutoff)
    else:
        heapq.heappush(state.heap, (key, index))


def _found(
    state: _State,
    lower_bound: float,
    seconds: float,
    *,
    hardware: ClusterHardware,
    choices: tuple[Choice, ...],
    edges: tuple[Choice, ...],
) -> Found:
    best = state.best
    if best is None:
        raise AssertionError("a found result has a best plan")
    strategy = strategy_of(
        state.pricing.instance(best.index),
        best.counts,
        configuration=state.rows[best.index],
        choices=choices,
        edges=edges,
        device_group=hardware.kinds[0].device_group,
    )
    gap = max(0.0, 1.0 - lower_bound / best.step_seconds)
    proven = gap <= PROOF_TOLERANCE
    certificate = Certificate(
        status="optimal" if proven else "feasible",
        lower_bound_seconds=best.step_seconds if proven else lower_bound,
        gap_ratio=0.0 if proven else gap,
        configurations_total=len(state.rows),
        configurations_pruned=len(state.rows) - len(state.solved),
        milp_count=state.milp_count,
        solver=state.solver.value,
        solve_seconds=seconds,
    )
    return Found(
        strategy=strategy,
        step_seconds=best.step_seconds,
        certificate=certificate,
        runners_up=_runners_up(state, best),
    )


def _runners_up(state: _State, best: Best) -> tuple[Candidate, ...]:
    """Return the least key of each other (tensor, pipeline, context) triple, least first."""

    def degrees(row: Configuration) -> tuple[int, int, int]:
        return (
            row.tensor_parallel_degree,
            row.pipeline_parallel_degree,
            row.context_parallel_degree,
        )

    chosen = degrees(state.rows[best.index])
    least: dict[tuple[int, int, int], int] = {}
    for index, key in enumerate(state.keys):
        group = degrees(state.rows[index])
        if group != chosen and np.isfinite(key):
            known = least.get(group)
            if known is None or key < state.keys[known]:
                least[group] = index
    ranked = sorted(least.values(), key=lambda index: (state.keys[index], index))
    return tuple(
        Candidate(
            configuration=state.rows[index],
            step_seconds=state.keys[index],
            is_lower_bound=index not in state.exact,
        )
        for index in ranked[:_RUNNERS_UP]
    )


def _shortfalls(state: _State) -> tuple[Shortfall, ...]:
    """Return the configurations that come closest to fitting, by the bytes that they need."""
    shortfalls = []
    for index, row in enumerate(state.rows):
        instance = state.pricing.instance(index)
        required = least_memory_bytes(instance)
        shortfalls.append(
            Shortfall(
                configuration=row,
                required_bytes=required,
                capacity_bytes=instance.capacity_bytes,
                exceeds_device=required > instance.capacity_bytes,
            )
        )
    shortfalls.sort(key=lambda shortfall: shortfall.required_bytes)
    return tuple(shortfalls[:_SHORTFALLS])
