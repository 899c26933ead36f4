"""Groups of ranks: what one was asked before says nothing of what it is asked next."""

from __future__ import annotations

import numpy as np
import pytest

from planner.cost.collectives import Group
from planner.network import Level, OwnCollective

RANKS = np.array([[1.0], [4.0], [8.0], [16.0], [48.0]])
STRIDES = np.array([[1.0], [2.0], [1.0], [4.0], [1.0]])
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "ring_pass")


def levels(**collectives: OwnCollective) -> tuple[Level, ...]:
    """Nodes of 8 in a cluster, both with latency; the nodes may have collectives of their own."""
    return tuple(
        Level(
            name=name,
            device_count=count,
            bandwidth_bytes_per_second=rate,
            latency_seconds=latency,
            norm_exponent=exponent,
            all_reduce_bandwidth_ratio=1.5,
            collectives=tuple(collectives.values()) if name == "node" else (),
        )
        for name, count, rate, latency, exponent in (
            ("node", 8, 4e11, 8e-6, 0.7),
            ("cluster", 192, 5e10, 3e-5, 0.8),
        )
    )


def a_group(own: tuple[Level, ...]) -> Group:
    return Group(rank_count=RANKS, stride=STRIDES, levels=own)


@pytest.mark.parametrize("order", [KINDS, KINDS[::-1]])
def test_a_group_answers_the_same_in_whatever_order_it_is_asked(order: tuple[str, ...]) -> None:
    messages = [np.full((5, 1), size) for size in (0.0, 1e3, 1e9)]
    used = a_group(levels())
    for message in messages:
        for kind in order:
            alone = getattr(a_group(levels()), kind)(message)
            assert np.array_equal(getattr(used, kind)(message), alone)
            assert alone.shape == (5, 1)
            assert alone[0, 0] == 0.0  # a rank alone
            assert (alone[1:] > 0.0).all() == (kind != "ring_pass" or message.max() > 0.0)


def test_a_collective_of_a_level_s_own_is_not_taken_for_another() -> None:
    """Scattering over nodes has half of their bandwidth and ten times their latency here."""
    slow = OwnCollective(
        kind="reduce_scatter", bandwidth_ratio=0.5, latency_seconds=8e-5, norm_exponent=1.0
    )
    group, message = a_group(levels(slow=slow)), np.full((5, 1), 1e8)
    gathered, scattered = group.all_gather(message), group.reduce_scatter(message)
    assert np.array_equal(gathered, a_group(levels()).all_gather(message))
    assert (scattered[1:] > gathered[1:]).all()
    alike = a_group(levels())
    assert np.array_equal(alike.all_gather(message), alike.reduce_scatter(message))


def test_copies_for_one_domain_are_sent_once() -> None:
    """48 ranks lie in 6 nodes; of 8 copies at most 6 leave a rank, and none do so twice."""
    group = Group(rank_count=48.0, stride=1.0, levels=levels())
    once, eight = group.all_to_all(1e9), group.all_to_all(1e9, copies=8)
    assert eight < once
    assert group.all_to_all(1e9) == once
