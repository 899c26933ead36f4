"""Bounds of many configurations at once exceed none's optimum, found by trying everything."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from planner.cost.configuration import Choices, Configurations, LayerChoices
from planner.cost.table import cost_table
from planner.ilp.lagrangian_bound import objective_bounds
from planner.ilp.problem import Problem
from planner.proof.duality import space_of, verdicts
from planner.requests.resolution import resolved_cluster, resolved_model, resolved_request
from planner.schema.job import Job
from planner.schema.plan import ResolvedCluster, ResolvedModel
from planner.space.choices import block_choices, edge_choices
from tests.builders import a_job
from tests.draws import drawn, of_drawn
from tests.oracle import best_plan
from tests.small_jobs import Priced, priced, small_jobs

ONE_OF = 3
JOBS = drawn(range(200, 260), one_of=ONE_OF)
ROUNDING = 1.0 + 1e-9


@cache
def solved() -> tuple[tuple[int, Priced, tuple[float, ...]], ...]:
    """Jobs with the least step of each configuration, inf where nothing fits."""
    found = []
    for seed, job in small_jobs(JOBS):
        best = [best_plan(instance) for _, instance in job.instances()]
        steps = tuple(math.inf if plan is None else plan.step_seconds for plan in best)
        found.append((seed, job, steps))
    return tuple(found)


def test_jobs_are_of_every_sort() -> None:
    """Else the tests below would say little."""
    jobs = [job for _, job, _ in solved()]
    steps = [step for _, _, own in solved() for step in own]
    schedules = {str(s) for job in jobs for s in job.space.configurations.pipeline_schedule}
    assert len(schedules) == 5
    assert sum(len(job.problem.hardware.kinds) > 1 for job in jobs) > of_drawn(10, one_of=ONE_OF)
    assert sum(np.isfinite(steps)) > of_drawn(1000, one_of=ONE_OF)
    assert sum(np.isinf(steps)) > of_drawn(500, one_of=ONE_OF)


def test_no_bound_without_memory_exceeds_the_optimum() -> None:
    """And whatever is inf has no plan."""
    for seed, job, steps in solved():
        assert (job.pricing.quick_bounds() <= np.array(steps) * ROUNDING).all(), f"job {seed}"


def test_no_bound_with_memory_exceeds_the_optimum() -> None:
    """And it is inf only where nothing fits."""
    for seed, job, steps in solved():
        bounds = job.pricing.memory_bounds(range(len(steps)))
        assert (bounds <= np.array(steps) * ROUNDING).all(), f"job {seed}"


def test_what_fits_in_a_configuration_fits_in_its_leanest() -> None:
    """So that nothing fits where nothing fits in that; and some have one that is not themselves."""
    others = 0
    for seed, job, steps in solved():
        for index, leanest in job.pricing.leanest(range(len(steps))).items():
            others += leanest != index and math.isinf(steps[leanest])
            assert math.isfinite(steps[leanest]) or math.isinf(steps[index]), f"job {seed}"
    assert others > of_drawn(100, one_of=ONE_OF)


def test_what_is_above_a_limit_stays_above_it() -> None:
    """What is bounded less closely, as it is above its limit, says so; and nothing is too high."""
    above = 0
    for seed, job, steps in solved():
        own = np.array(steps)
        limit = float(np.median(own[np.isfinite(own)])) if np.isfinite(own).any() else 1.0
        every = job.pricing.memory_bounds(range(len(steps)))
        found = job.pricing.memory_bounds(
            range(len(steps)), limit_seconds=np.full(len(steps), limit).tolist()
        )
        assert (found <= own * ROUNDING).all(), f"job {seed}"
        alike = np.isclose(found, every, rtol=ROUNDING - 1.0, atol=0.0)
        assert ((found >= limit) | alike).all(), f"job {seed}"
        assert (every[found >= limit] >= limit).all(), f"job {seed}"
        above += int((found >= limit).sum())
    assert above > of_drawn(900, one_of=ONE_OF)


def test_no_bound_of_an_instance_exceeds_its_optimum() -> None:
    """The last bound before a solve, on real prices."""
    for seed, job, steps in solved():
        for index, instance in job.instances():
            bounds = objective_bounds(instance)
            least = np.inf if bounds is None else bounds.step_seconds()
            assert least <= steps[index] * ROUNDING, f"job {seed}, row {index}"


def test_memory_is_no_reason_for_a_lower_bound() -> None:
    """Each bound is at least the one before it, up to how finely ranks are grouped."""
    raised = 0
    for _, job, steps in solved():
        quick = job.pricing.quick_bounds()
        screened = job.pricing.memory_bounds(range(len(steps)))
        raised += int((screened > quick * (1.0 + 1e-6)).sum())
        assert (screened >= quick * 0.75).all()
    assert raised > 200


@pytest.mark.parametrize(
    ("model", "cluster", "batch"),
    [("qwen3-30b-a3b", "64xh100-sxm5-80gb", 128), ("llama-3-8b", "16xl40s-48gb", 128)],
)
def test_few_choices_bound_all_of_them(model: str, cluster: str, batch: int) -> None:
    """Bounds without memory leave choices out; none may be needed for less.

    On a lone rank the least step is the sum over layers of the least m pace + end of any choice.
    """
    job = a_job(global_batch_size=batch, sequence_length=4096)
    request = resolved_request(resolved_model(model), resolved_cluster(cluster), job)
    problem = Problem(
        graph=request.model.resolved,
        workload=request.workload,
        hardware=request.hardware,
        job=request.job.resolved,
    )
    made = priced(problem)
    columns = made.space.configurations
    alone = np.flatnonzero(columns.pipeline_parallel_degree == 1)
    least = _least_on_lone_ranks(problem, columns.take(alone))
    assert len(alone) > 50
    assert (made.pricing.quick_bounds()[alone] <= least * ROUNDING).all()


def _resolved(model: ResolvedModel, cluster: ResolvedCluster, job: Job) -> Problem:
    request = resolved_request(model, cluster, job)
    return Problem(
        graph=request.model.resolved,
        workload=request.workload,
        hardware=request.hardware,
        job=request.job.resolved,
    )


def _least_on_lone_ranks(problem: Problem, columns: Configurations) -> np.ndarray:
    limits = problem.job.limits
    edges = Choices.of(edge_choices(limits))
    blocks = Choices.of(block_choices(limits))
    table = cost_table(
        problem.workload,
        problem.hardware.kinds[0],
        problem.job,
        configurations=columns,
        choices=LayerChoices(blocks=blocks, embedding=edges, head=edges),
    )
    total = table.fixed.step_end_seconds.copy()
    layers = [(table.embedding, 1), (table.head, 1)]
    layers += [(table.blocks[kind], count) for kind, count in table.chain]
    for costs, count in layers:
        pace = columns.micro_batch_count[:, None] * costs.micro_batch_seconds.total()
        total += count * (pace + costs.step_end_seconds.total()).min(axis=1)
    return np.asarray(total)


def test_no_price_of_memory_excludes_a_plan_that_there_is() -> None:
    """Whatever the prices; and good ones exclude some that none excludes below the fastest plan."""
    excluded, excluded_unpriced, total = 0, 0, 0
    for seed, job, own in solved():
        steps = np.array(own)
        finite = np.sort(steps[np.isfinite(steps)])
        problem = job.problem
        space = space_of(problem.graph, problem.workload, problem.hardware, problem.job)
        memory = max(kind.device_memory_bytes for kind in problem.hardware.kinds)
        for quantile in (0.0, 0.3, 0.9):
            bound = finite[int(quantile * (len(finite) - 1))] if len(finite) else 1.0
            prices = bound / memory * np.geomspace(1e-3, 1e2, 6)
            found = verdicts(space, bound_seconds=bound, prices=prices.tolist())
            assert np.isinf(steps[found.is_infeasible]).all(), f"job {seed}"
            assert (steps[found.is_bounded] * ROUNDING >= bound).all(), f"job {seed}"
            if quantile == 0.0:
                unpriced = verdicts(space, bound_seconds=bound, prices=[0.0])
                excluded += int((found.is_infeasible | found.is_bounded).sum())
                excluded_unpriced += int((unpriced.is_infeasible | unpriced.is_bounded).sum())
                total += len(steps)
    assert excluded > excluded_unpriced > total / 2
