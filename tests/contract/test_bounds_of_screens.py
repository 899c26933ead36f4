"""Bounds of many configurations at once exceed none's optimum, found by trying everything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from planner.cost.configuration import Choice, Choices, LayerChoices
from planner.ilp.bounds import memory_bound
from planner.ilp.pricing import Pricing
from planner.space.choices import block_choices, edge_choices
from tests.oracle import best_plan
from tests.small_jobs import Priced, small_jobs

JOBS = range(200, 260)
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
    assert sum(len(job.problem.hardware.kinds) > 1 for job in jobs) > 10
    assert sum(np.isfinite(steps)) > 1000
    assert sum(np.isinf(steps)) > 500


def test_no_bound_without_memory_exceeds_the_optimum() -> None:
    """And whatever is inf has no plan."""
    for seed, job, steps in solved():
        quick = job.pricing.quick_bounds()
        assert (quick <= np.array(steps) * ROUNDING).all(), f"job {seed}"


def test_no_bound_with_memory_exceeds_the_optimum() -> None:
    """And it is inf only where nothing fits."""
    for seed, job, steps in solved():
        bounds = job.pricing.memory_bounds(range(len(steps)))
        assert (bounds <= np.array(steps) * ROUNDING).all(), f"job {seed}"


def test_no_bound_of_an_instance_exceeds_its_optimum() -> None:
    """The last bound before a solve, on real prices."""
    for seed, job, steps in solved():
        for index, instance in job.instances():
            assert memory_bound(instance) <= steps[index] * ROUNDING, f"job {seed}, row {index}"


def test_memory_is_no_reason_for_a_lower_bound() -> None:
    """Each bound is at least the one before it, up to how finely ranks are grouped."""
    raised = 0
    for _, job, steps in solved():
        quick = job.pricing.quick_bounds()
        screened = job.pricing.memory_bounds(range(len(steps)))
        raised += int((screened > quick * (1.0 + 1e-6)).sum())
        assert (screened >= quick * 0.75).all()
    assert raised > 200


@pytest.mark.parametrize("start", [300, 330])
def test_plain_choices_have_the_least_seconds_of_all(
    start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quick bounds from choices without recompute and transfers never exceed those from all."""
    for seed, job in small_jobs(range(start, start + 30)):
        plain = job.pricing.quick_bounds()
        limits = job.problem.job.limits
        with monkeypatch.context() as patch:
            patch.setattr("planner.ilp.pricing._plain_choices", _all_choices)
            whole = Pricing(
                job.problem,
                configurations=job.space.configurations,
                choices=block_choices(limits),
                edges=edge_choices(limits),
            ).quick_bounds()
        assert (plain <= whole * (1.0 + 1e-12)).all(), f"job {seed}"


def _all_choices(choices: Sequence[Choice], edges: Sequence[Choice]) -> LayerChoices:
    edge = Choices.of(edges)
    return LayerChoices(blocks=Choices.of(choices), embedding=edge, head=edge)
