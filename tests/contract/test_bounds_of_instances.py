"""No bound of an instance exceeds what trying everything finds, and no reduction loses it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from planner.ilp.instance import Instance, undominated
from planner.ilp.lagrangian_bound import (
    Reduction,
    Windows,
    least_memory_bytes,
    objective_bounds,
    reduction,
)
from tests.draws import drawn, of_drawn
from tests.oracle import Optimum, best_plan, least_step
from tests.small_chains import seeded_instance

ONE_OF = 9
SEEDS = drawn(range(2000), one_of=ONE_OF)
ROUNDING = 1.0 + 1e-9


@cache
def solved() -> tuple[tuple[int, Instance, Optimum | None], ...]:
    """Instances of every sort with the best plan of each."""
    made = ((seed, seeded_instance(seed)) for seed in SEEDS)
    return tuple((seed, instance, best_plan(instance)) for seed, instance in made)


def within(windows: Windows, instance: Instance, cuts: tuple[int, ...], held: np.ndarray) -> bool:
    """Whether the windows have a plan with these cuts and layers of each kind by rank."""
    free = list(instance.free_kinds)
    blocks = held[:, free]
    number = blocks.sum(axis=1)
    inside = (windows.least <= number) & (number <= windows.most)
    inside &= (windows.sure[:, free] <= blocks).all(axis=1)
    inside &= (blocks <= windows.room[:, free]).all(axis=1)
    if windows.cuts is None:
        return bool(inside.all())
    first, last = windows.cuts
    return bool(inside.all() and (first <= cuts).all() and (cuts <= last).all())


def best_that_is_left(instance: Instance, reduced: Reduction) -> float | None:
    """The least step of the plans that a reduction leaves."""
    best = best_plan(
        instance,
        most=reduced.most,
        cuts_allowed=lambda cuts, held: within(reduced.windows, instance, cuts, held),
    )
    return None if best is None else best.step_seconds


def test_instances_are_of_every_sort() -> None:
    """Else the tests below would say little: count what they have."""
    instances = [(instance, best) for _, instance, best in solved()]
    assert sum(best is not None for _, best in instances) > of_drawn(1200, one_of=ONE_OF)
    assert sum(best is None for _, best in instances) > of_drawn(300, one_of=ONE_OF)
    least = of_drawn(150, one_of=ONE_OF)
    for is_sort in (
        lambda i: i.is_uniform,
        lambda i: not i.is_uniform and i.is_in_order,
        lambda i: len(i.free_kinds) > 1 and i.least_blocks > 1,
        lambda i: i.extras is not None,
        lambda i: np.ptp(i.capacity_bytes) > 0.0,
        lambda i: i.holders[0] == i.holders[-1] and i.least_blocks > 1 and i.stage_count > 1,
        lambda i: len(i.chain) > len(i.free_kinds),
    ):
        assert sum(is_sort(instance) and best is not None for instance, best in instances) > least


def test_no_bound_exceeds_the_optimum() -> None:
    """A bound above the optimum would prune it silently; inf is right only where nothing fits."""
    for seed, instance, best in solved():
        if best is not None:
            bounds = objective_bounds(instance)
            assert bounds is not None, f"instance {seed}"
            assert bounds.step_seconds() <= best.step_seconds * ROUNDING, f"instance {seed}"


def test_no_part_of_a_bound_exceeds_that_part_of_the_optimum() -> None:
    """Sum of fills, repeated pace, largest end, and the latter two together."""
    for seed, instance, best in solved():
        bounds = objective_bounds(instance)
        if best is None or bounds is None:
            assert best is None, f"instance {seed}"
            continue
        assert bounds.fill_sum <= best.fill_sum * ROUNDING, f"instance {seed}"
        assert bounds.repeated_pace <= best.repeated_pace * ROUNDING, f"instance {seed}"
        assert bounds.largest_end <= best.largest_end * ROUNDING, f"instance {seed}"
        together = best.repeated_pace + best.largest_end
        assert bounds.omega <= together * ROUNDING, f"instance {seed}"


def test_bounds_are_near_the_optimum() -> None:
    """Bounds of 0 would pass every test above: half of them are within a quarter of it."""
    gaps = [
        1.0 - bounds.step_seconds() / best.step_seconds
        for _, instance, best in solved()
        if best is not None and (bounds := objective_bounds(instance)) is not None
    ]
    assert float(np.median(gaps)) < 0.25


def test_a_reduction_at_the_optimum_keeps_it() -> None:
    """Neither `most` nor the windows exclude every best plan."""
    for seed, instance, best in solved():
        if best is None:
            continue
        for factor in (ROUNDING, 1.1, float("inf")) if seed < 400 else (ROUNDING,):
            reduced = reduction(instance, cutoff_seconds=best.step_seconds * factor)
            assert reduced is not None, f"instance {seed}"
            left = best_that_is_left(instance, reduced)
            assert left is not None, f"instance {seed}"
            assert left <= best.step_seconds * ROUNDING, f"instance {seed}"
            assert reduced.bounds.fill_sum <= best.fill_sum * ROUNDING, f"instance {seed}"
            assert reduced.bounds.step_seconds() <= best.step_seconds * ROUNDING, f"instance {seed}"


def test_least_memory_is_a_lower_bound_of_any_plan() -> None:
    """With less of it on every rank than the least excess asks for, nothing fits."""
    for seed, instance, _ in solved()[: of_drawn(600, one_of=ONE_OF)]:
        excess = least_memory_bytes(instance) - float(instance.capacity_bytes.max())
        starved = replace(
            instance,
            capacity_bytes=instance.capacity_bytes + excess - 0.5,
            host_capacity_bytes=np.full(instance.stage_count, 1e9),
        )
        assert least_step(starved) is None, f"instance {seed}"


def test_dropping_dominated_choices_keeps_the_optimum() -> None:
    """A choice that another equals or beats in every column on every rank is never needed."""
    names = ("pace", "fill", "end", "memory", "transient", "host")
    dropped = 0
    for seed, instance, best in solved()[: of_drawn(1000, one_of=ONE_OF)]:
        kinds = []
        for kind in instance.kinds:
            kept = undominated(np.concatenate([getattr(kind, name) for name in names]))
            dropped += len(kind.choice) - len(kept)
            kinds.append(
                replace(
                    kind,
                    choice=tuple(kept.tolist()),
                    kept=kind.kept[:, kept],
                    **{name: getattr(kind, name)[:, kept] for name in names},
                )
            )
        lean = least_step(replace(instance, kinds=tuple(kinds)))
        assert lean == (None if best is None else best.step_seconds), f"instance {seed}"
    assert dropped > of_drawn(300, one_of=ONE_OF)
