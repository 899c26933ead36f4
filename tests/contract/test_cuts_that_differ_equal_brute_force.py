"""Where cuts differ and ranks hold several parts, branching has a bound of what everything has."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from planner.ilp.branch_and_bound import branching_of
from planner.ilp.instance import Instance, at_cuts, everywhere, placed
from tests.contract.test_branching_equals_brute_force import run_to_the_end
from tests.draws import drawn, of_drawn
from tests.oracle import least_step
from tests.small_chains import seeded_instance

ONE_OF = 7
SEEDS = drawn(range(1200), one_of=ONE_OF)


@cache
def several_parts() -> list[tuple[int, Instance, float]]:
    """Return the instances with a plan whose ranks hold several parts and whose cuts differ."""
    found = []
    for seed in SEEDS:
        instance = seeded_instance(seed)
        if instance.extras is None or instance.is_in_order:
            continue
        best = least_step(instance)
        if best is not None:
            found.append((seed, instance, best))
    return found


def test_the_best_plan_of_cuts_at_their_least_is_a_bound() -> None:
    reached = below = 0
    for seed, instance, best in several_parts():
        least = least_step(placed(instance, everywhere(instance)))
        assert least is not None
        branching = branching_of(instance, cutoff_seconds=best)
        assert branching is not None
        outcome = run_to_the_end(branching, best)
        if outcome.is_done:
            assert outcome.bound_seconds == pytest.approx(least, rel=1e-9), f"instance {seed}"
            reached, below = reached + 1, below + (least < best * (1.0 - 1e-9))
    assert reached > of_drawn(40, one_of=ONE_OF)
    assert below > 0


def test_a_cut_adds_in_its_windows_no_more_than_where_it_is() -> None:
    generator = np.random.default_rng(1)
    for _, instance, _ in several_parts():
        wide = placed(instance, everywhere(instance))
        inner = np.arange(1, instance.block_count)
        chosen = np.sort(generator.choice(inner, len(instance.holders) - 1, replace=False))
        exact = at_cuts(instance, (0, *chosen.tolist(), instance.block_count))
        for name in ("stage_pace", "stage_fill", "stage_bytes"):
            assert (getattr(wide, name) <= getattr(exact, name) + 1e-12).all()
            assert (getattr(instance, name) <= getattr(wide, name) + 1e-12).all()
