"""Cuts with little memory: what they add, and that no rank is too tight at them."""

import numpy as np

from planner.ilp.construction_heuristic import cut_moves, held_at
from planner.ilp.engine import Effort
from planner.ilp.feasibility import cut_bytes, eased_cuts, rooms_of
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


def test_no_rank_is_too_tight_at_eased_cuts():
    seen = 0
    for one in instances(is_uniform=False):
        rooms = rooms_of(one)
        for cuts in eased_cuts(one, rooms, effort=Effort()):
            assert (cuts[0], cuts[-1]) == (0, one.block_count)
            assert (np.diff(cuts) > 0).all()
            held, further = held_at(one, np.array(cuts)), cut_bytes(one, cuts)
            for rank, room in enumerate(rooms):
                tight = room.tightness(held[rank : rank + 1], further[rank : rank + 1])
                assert tight[0] <= 1.0 + 1e-9
            seen += 1
    assert seen > 20


def test_without_effort_cuts_are_taken_as_they_are():
    for one in instances(is_uniform=False):
        over = list(eased_cuts(one, rooms_of(one), effort=Effort(most=0.0)))
        assert set(over) <= set(eased_cuts(one, rooms_of(one), effort=Effort()))


def test_moves_leave_a_block_on_every_stage():
    for one in instances(is_uniform=False):
        cuts = np.array(first_cuts(one))
        for move in cut_moves(one, cuts, (-4, -1, 1, 4)):
            assert (np.diff(move) > 0).all()
            assert np.count_nonzero(move != cuts) == 1
