"""Cuts with little memory: what they add, and that they leave a block on every stage."""

import numpy as np

from planner.ilp.feasibility import cut_bytes, lean_cuts
from planner.ilp.stage_loads import at_cuts
from tests.small_chains import seeded_instance


def instances(**wanted):
    found = [seeded_instance(seed) for seed in range(120)]
    return [one for one in found if all(getattr(one, k) == v for k, v in wanted.items())]


def first_cuts(instance):
    parts = len(instance.holders)
    return (*range(parts), instance.block_count)


def test_cuts_add_the_bytes_that_they_add_to_the_ranks_themselves():
    extras = [one for one in instances() if one.extras is not None]
    assert len(extras) > 10
    for one in extras:
        cuts = first_cuts(one)
        added = at_cuts(one, cuts).stage_bytes - one.stage_bytes
        np.testing.assert_allclose(cut_bytes(one, cuts), added)


def test_cuts_that_cost_the_same_everywhere_add_nothing():
    one = next(one for one in instances() if one.extras is None)
    assert not cut_bytes(one, first_cuts(one)).any()


def test_lean_cuts_leave_a_block_on_every_stage_and_are_tried_once():
    seen = 0
    for one in instances(is_uniform=False):
        tried = list(lean_cuts(one))
        assert len(set(tried)) == len(tried)
        for cuts in tried:
            assert (cuts[0], cuts[-1]) == (0, one.block_count)
            assert (np.diff(cuts) > 0).all()
            seen += 1
    assert seen > 20
