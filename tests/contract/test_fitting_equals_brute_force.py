"""Whether anything fits is what trying everything says, of one configuration and of whole jobs."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from planner.cost.step import predict
from planner.ilp.feasibility import fitted, rooms_of
from planner.ilp.instance import Instance, evaluate, fits
from planner.ilp.problem import Effort, Found, NotFound
from planner.ilp.search import search
from planner.ilp.stage_loads import with_pinned
from planner.space.legality import breaches
from tests.draws import drawn, of_drawn
from tests.oracle import best_plan, least_step
from tests.small_chains import seeded_instance
from tests.small_jobs import random_assignment, small_jobs

UNITS = 60e6
ONE_OF = 5
JOBS_ONE_OF = 3


def sort_of(instance: Instance) -> str:
    """What decides which way a plan is looked for."""
    if instance.is_uniform:
        return "numbers"
    return "in order" if instance.is_in_order else "several parts"


def test_a_plan_is_found_or_none_is_proven_to_be_there() -> None:
    """Every plan fits with its layers placed; "none" is never said where there is one."""
    said: Counter[tuple[str, str]] = Counter()
    for seed in drawn(range(600), one_of=ONE_OF):
        instance = seeded_instance(seed)
        answer = fitted(instance, effort=Effort(most=UNITS))
        has_plan = least_step(instance) is not None
        sort = sort_of(instance)
        if answer.assignment is not None:
            assert fits(instance, evaluate(instance, answer.assignment)), f"instance {seed}"
            placed = [int(count.sum()) for count in answer.assignment.counts]
            assert placed == [kind.count for kind in instance.kinds], f"instance {seed}"
            cuts = answer.assignment.cuts
            assert all(first < second for first, second in pairwise(cuts)), f"instance {seed}"
            said[sort, "plan"] += 1
        elif answer.is_proven:
            assert not has_plan, f"instance {seed}"
            said[sort, "none"] += 1
        else:
            said[sort, "unknown"] += 1
    for sort in ("numbers", "in order", "several parts"):
        assert min(said[sort, "plan"], said[sort, "none"]) > of_drawn(20, one_of=ONE_OF)
    assert sum(said[sort, "unknown"] for sort in ("numbers", "in order", "several parts")) < 12


def test_nothing_is_looked_into_without_effort_and_nothing_said() -> None:
    for seed in range(100):
        instance = seeded_instance(seed)
        answer = fitted(instance, effort=Effort(most=0.0))
        assert not (answer.is_proven and least_step(instance) is not None), f"instance {seed}"


def test_what_fits_on_a_rank_is_not_too_tight_and_can_be_packed() -> None:
    """Of any assignment: ranks that keep their limits have a tightness of 1 at most."""
    numbers = np.random.default_rng(7)
    kept = 0
    for seed in drawn(range(300), one_of=ONE_OF):
        instance = seeded_instance(seed)
        if instance.extras is not None:
            continue
        rooms = rooms_of(instance)
        assignment = random_assignment(instance, numbers)
        found = evaluate(instance, assignment)
        for rank, room in enumerate(rooms):
            if found.memory_bytes[rank] > instance.capacity_bytes[rank]:
                continue
            if found.host_bytes[rank] > instance.host_capacity_bytes[rank]:
                continue
            load = tuple(int(assignment.counts[k][rank].sum()) for k in instance.free_kinds)
            held = with_pinned(instance, rank, load)
            tight = room.tightness(np.array([held]), np.zeros(1))[0]
            assert tight <= 1.0 + 1e-9, f"instance {seed}, rank {rank}"
            assert room.packing(held) is not True, f"instance {seed}, rank {rank}"
            kept += 1
    assert kept > of_drawn(100, one_of=ONE_OF)


def test_more_bytes_on_a_rank_make_it_tighter_until_nothing_fits() -> None:
    instance = next(i for i in map(seeded_instance, range(50)) if i.extras is None)
    room = rooms_of(instance)[0]
    held = with_pinned(instance, 0, tuple(1 for _ in instance.free_kinds))
    further = np.linspace(0.0, 2.0 * float(instance.capacity_bytes[0]), 8)
    tight = room.tightness(np.repeat([held], len(further), axis=0), further)
    assert (np.diff(tight[np.isfinite(tight)]) >= 0.0).all()
    assert math.isinf(tight[-1])
    assert room.packing(held, float(further[-1])) is True


@pytest.mark.parametrize(
    ("first", "limits", "least_certain"),
    [(400, {"pipeline_schedules": ("1f1b", "gpipe")}, 1.0), (500, {}, 0.9)],
    ids=["one_part_a_rank", "all_schedules"],
)
def test_a_job_has_a_plan_if_any_of_its_configurations_has(first, limits, least_certain) -> None:
    said: Counter[str] = Counter()
    seeds = drawn(range(first, first + 40), one_of=JOBS_ONE_OF)
    for seed, job in small_jobs(seeds, **limits):
        has_plan = any(
            best_plan(instance, keeping=job.keeping(index)) is not None
            for index, instance in job.instances()
        )
        answer = search(job.problem, is_any_welcome=True)
        if isinstance(answer, Found):
            problem = job.problem
            assert has_plan, f"job {seed}"
            assert not list(breaches(problem.graph, problem.hardware, problem.job, answer.strategy))
            priced = predict(problem.workload, problem.hardware, problem.job, answer.strategy)
            assert priced.fits, f"job {seed}"
            said["plan"] += 1
        elif answer.proven:
            assert isinstance(answer, NotFound)
            assert not has_plan, f"job {seed}"
            said["none"] += 1
        else:
            said["unknown"] += 1
    assert said["plan"] > of_drawn(10, one_of=JOBS_ONE_OF)
    assert said["none"] > of_drawn(2, one_of=JOBS_ONE_OF)
    assert said["plan"] + said["none"] >= least_certain * said.total()
