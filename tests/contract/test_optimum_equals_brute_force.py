"""The optimum of an instance is what trying everything finds, and no bound exceeds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import HealthCheck, given, settings

from planner.ilp.bounds import least_memory_bytes, memory_bound
from planner.ilp.heuristic import heuristic_counts
from planner.ilp.instance import Instance, evaluate, fits
from planner.ilp.optimise import optimise
from planner.ilp.solver import SolverName, Status, available_solvers
from tests.strategies import instances, without_dominated

SEARCHED = settings(
    max_examples=250,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def cuts(total: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Every way to cut a chain of `total` blocks into `stages` parts, none empty."""
    for inner in combinations(range(1, total), stages - 1):
        yield (0, *inner, total)


def brute_force(instance: Instance) -> float | None:
    """The least step over every cut and every choice of every layer, None if nothing fits.

    Written from the definitions, layer by layer; nothing of the searched code is used.
    """
    first, *blocks, last = instance.runs
    chain = [run for run in blocks for _ in range(run.count)]
    stages = len(instance.in_flight)
    best: float | None = None
    for cut in cuts(len(chain), stages):
        for chosen in product(*[range(len(run.choice)) for run in (first, *chain, last)]):
            step = _step(instance, (first, *chain, last), cut, chosen)
            if step is not None and (best is None or step < best):
                best = step
    return best


def _step(instance, layers, cut, chosen) -> float | None:
    stages = len(instance.in_flight)
    paces, ends = [], []
    for r in range(stages):
        held = [(layers[1 + i], chosen[1 + i]) for i in range(cut[r], cut[r + 1])]
        if r == 0:
            held.append((layers[0], chosen[0]))
        if r == stages - 1:
            held.append((layers[-1], chosen[-1]))
        memory = instance.stage_bytes[r] + max(run.transient[s] for run, s in held)
        for run, s in held:
            memory += run.static[s] + instance.in_flight[r] * run.activation[s]
        host = sum(run.host[s] for run, s in held)
        if memory > instance.capacity_bytes or host > instance.host_capacity_bytes:
            return None
        paces.append(instance.stage_pace[r] + sum(run.pace[s] for run, s in held))
        ends.append(instance.stage_end + sum(run.end[s] for run, s in held))
    return sum(paces) + (instance.micro_batch_count - 1) * max(paces) + max(ends)


@pytest.mark.parametrize("solver", list(SolverName))
@SEARCHED
@given(instance=instances())
def test_optimum_equals_brute_force(solver, instance):
    """On both solvers, with the optimum's counts priced again giving the same step."""
    assert solver in available_solvers(), f"{solver} is missing: both must be tested"
    optimum = optimise(instance, cutoff_seconds=None, solver=solver, seconds=60.0)
    best = brute_force(instance)
    if best is None:
        assert optimum.status is Status.INFEASIBLE
    else:
        assert optimum.status is Status.OPTIMAL
        assert optimum.step_seconds == pytest.approx(best, rel=1e-9)


@SEARCHED
@given(instance=instances())
def test_no_bound_exceeds_the_optimum(instance):
    """An infinite bound means that nothing fits."""
    best = brute_force(instance)
    bound = memory_bound(instance)
    if best is not None:
        assert bound <= best * (1 + 1e-9)


@SEARCHED
@given(instance=instances())
def test_dropping_dominated_choices_keeps_the_optimum(instance):
    """A choice that another equals or beats in every column is never needed."""
    flights = (min(instance.in_flight), max(instance.in_flight))
    lean = replace(instance, runs=tuple(without_dominated(run, flights) for run in instance.runs))
    assert brute_force(lean) == brute_force(instance)


@SEARCHED
@given(instance=instances())
def test_heuristic_plans_are_plans(instance):
    """What the heuristic offers fits, places every layer, and is no better than the optimum."""
    tried = heuristic_counts(instance)
    if tried is not None:
        step, counts = tried
        best = brute_force(instance)
        assert best is not None
        assert step >= best * (1 - 1e-12)
        assert [int(placed.sum()) for placed in counts] == [run.count for run in instance.runs]
        assert fits(instance, evaluate(instance, counts))


@SEARCHED
@given(instance=instances())
def test_a_cutoff_below_the_optimum_leaves_nothing(instance):
    """And one at the optimum leaves the optimum."""
    best = brute_force(instance)
    if best is not None:
        solver = SolverName.HIGHS
        below = optimise(instance, cutoff_seconds=best * 0.999, solver=solver, seconds=60.0)
        at = optimise(instance, cutoff_seconds=best * (1 + 1e-7), solver=solver, seconds=60.0)
        assert below.status is Status.INFEASIBLE
        assert at.step_seconds == pytest.approx(best, rel=1e-9)


@SEARCHED
@given(instance=instances())
def test_least_memory_is_a_lower_bound_of_any_plan(instance):
    """With less memory than the least, nothing fits."""
    required = least_memory_bytes(instance)
    starved = replace(instance, capacity_bytes=required * 0.998 - 1e-6)
    assert brute_force(starved) is None
