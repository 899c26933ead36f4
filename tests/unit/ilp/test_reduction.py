"""What plans below a cutoff cannot have, on chains worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np

from planner.ilp.instance import Instance, Kind
from planner.ilp.lagrangian_bound import Reduction, reduction

KEPT, RECOMPUTED = (2.0, 4.0), (3.0, 1.0)


def a_kind(
    count: int, *options: tuple[float, float], ranks: int = 2, pinned: int | None = None
) -> Kind:
    """Layers with (seconds, bytes) by choice, the same on every rank."""
    seconds = np.array([[option[0] for option in options]] * ranks)
    held = np.array([[option[1] for option in options]] * ranks)
    none = np.zeros_like(seconds)
    return Kind(
        count=count,
        pinned_stage=pinned,
        pace=seconds,
        fill=seconds,
        end=none,
        memory=held,
        transient=none,
        host=none,
        kept=none,
        choice=tuple(range(len(options))),
    )


def an_instance(
    *kinds: Kind, capacity: float = 100.0, chain: Sequence[tuple[int, int]] | None = None
) -> Instance:
    """Blocks on two ranks, two micro-batches; six kept or recomputed ones if none are given."""
    blocks = kinds or (a_kind(6, KEPT, RECOMPUTED),)
    nothing = np.zeros(2)
    return Instance(
        repeat_count=1.0,
        stage_pace=nothing,
        stage_fill=nothing,
        stage_bytes=nothing,
        stage_end=nothing,
        capacity_bytes=nothing + capacity,
        host_capacity_bytes=nothing,
        least_blocks=1,
        holders=(0, 1),
        kinds=(a_kind(1, (0.0, 0.0), pinned=0), *blocks, a_kind(1, (0.0, 0.0), pinned=1)),
        chain=tuple(chain or [(place + 1, kind.count) for place, kind in enumerate(blocks)]),
    )


def reduced(instance: Instance, cutoff: float) -> Reduction:
    """What is left, which is something."""
    found = reduction(instance, cutoff_seconds=cutoff)
    assert found is not None
    return found


def test_a_cutoff_at_the_optimum_leaves_even_ranks_and_kept_blocks() -> None:
    """Six blocks of 2 s: 12 s through all ranks and the slower one, 6 s, again."""
    found = reduced(an_instance(), 18.0)
    assert found.windows.least.tolist() == [3, 3]
    assert found.windows.most.tolist() == [3, 3]
    assert found.most[1].tolist() == [[3, 0], [3, 0]]


def test_a_cutoff_below_the_optimum_leaves_nothing() -> None:
    assert reduction(an_instance(), cutoff_seconds=17.9) is None


def test_a_wider_cutoff_leaves_wider_windows() -> None:
    """Four and two blocks make 12 + 8 = 20 s; one and five, 22 s, are beyond."""
    found = reduced(an_instance(), 20.0)
    assert found.windows.least.tolist() == [2, 2]
    assert found.windows.most.tolist() == [4, 4]


def test_without_a_cutoff_memory_alone_leaves_windows() -> None:
    """Four bytes hold four recomputed blocks: two to four on each rank."""
    found = reduced(an_instance(capacity=4.0), inf)
    assert found.windows.least.tolist() == [2, 2]
    assert found.windows.most.tolist() == [4, 4]


def test_a_block_too_large_for_what_the_others_leave_is_dropped() -> None:
    """Three bytes hold three recomputed blocks; a kept one of 4 fits nowhere."""
    found = reduced(an_instance(capacity=3.0), inf)
    assert found.most[1].tolist() == [[0, 3], [0, 3]]


def test_a_choice_dominated_on_one_rank_stays_on_the_others() -> None:
    """On the second rank the faster choice is the smaller too; on the first it is larger."""
    kind = a_kind(6, (2.0, 3.0), (1.0, 4.0))
    kind = replace(kind, memory=np.array([[3.0, 4.0], [3.0, 2.0]]))
    found = reduced(an_instance(kind), inf)
    assert (found.most[1] > 0).tolist() == [[True, True], [False, True]]


def test_a_smaller_device_holds_fewer_blocks() -> None:
    """Three and nine bytes for recomputed blocks of 1: the first rank has three at most."""
    instance = replace(an_instance(), capacity_bytes=np.array([3.0, 9.0]))
    found = reduced(instance, inf)
    assert found.windows.most.tolist() == [3, 5]
    assert found.windows.least.tolist() == [1, 3]


def test_layers_of_a_kind_stay_where_their_place_in_the_chain_allows() -> None:
    """1, 1, 10, 10: cut after the third, 12 + 10 and 12 again; before it, a rank holds 20."""
    found = reduced(an_instance(a_kind(2, (1.0, 0.0)), a_kind(2, (10.0, 0.0))), 34.0)
    assert found.windows.cuts is not None
    assert found.windows.cuts.tolist() == [[0, 3, 4], [0, 3, 4]]
    assert found.most[1].tolist() == [[2], [0]]
    assert found.most[2].tolist() == [[1], [1]]


def test_given_cuts_leave_each_rank_what_lies_between_them_of_every_kind() -> None:
    """Two virtual stages a rank: the first has blocks 0, 1, 4 and 5, the other 2, 3, 6 and 7."""
    quick, slow = a_kind(5, (1.0, 2.0)), a_kind(3, (2.0, 2.0))
    instance = replace(
        an_instance(quick, slow, chain=[(1, 5), (2, 3)]), least_blocks=2, holders=(0, 1, 0, 1)
    )
    found = reduction(instance, cutoff_seconds=inf, cuts=(0, 2, 4, 6, 8))
    assert found is not None
    for counts in (found.windows.sure, found.windows.room):
        assert counts[:, 1:3].tolist() == [[3, 1], [2, 2]]
