"""Collectives on levels: hand-counted bytes over hand-picked bandwidths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from planner.cost.collectives import (
    Group,
    all_gather_seconds,
    all_reduce_seconds,
    all_to_all_seconds,
    reduce_scatter_seconds,
    send_recv_seconds,
    send_recv_seconds_by_level,
)
from planner.cost.configuration import Floats
from planner.network import Level, OwnCollective


def a_level(device_count: int, gigabytes_per_second: float, **changes: float) -> Level:
    """A level without latency, so that time is bytes over bandwidth."""
    fields = {"latency_seconds": 0.0, "norm_exponent": 1.0, "all_reduce_bandwidth_ratio": 1.0}
    return Level(
        name=f"level of {device_count}",
        device_count=device_count,
        bandwidth_bytes_per_second=gigabytes_per_second * 1e9,
        **{**fields, **changes},
    )


NODE_AND_CLUSTER = (a_level(8, 100.0), a_level(64, 10.0))


def test_all_gather_moves_what_the_others_hold() -> None:
    """7/8 of 8 GB at 100 GB/s."""
    seconds = all_gather_seconds(8e9, rank_count=8.0, stride=1.0, levels=NODE_AND_CLUSTER)
    assert float(seconds) == pytest.approx(0.07)


def test_all_reduce_moves_twice_what_an_all_gather_moves() -> None:
    seconds = all_reduce_seconds(8e9, rank_count=8.0, stride=1.0, levels=NODE_AND_CLUSTER)
    assert float(seconds) == pytest.approx(0.14)


@pytest.mark.parametrize(
    ("domain", "ranks", "links"),
    [(8, 2.0, 1.0), (8, 4.0, 4.0), (8, 8.0, 6.0), (6, 3.0, 2.5)],
)
def test_a_group_in_a_mesh_has_the_links_between_its_own_ranks(
    domain: int, ranks: float, links: float
) -> None:
    """Six links of 20 GB/s, of which pairs have one and four ranks four; three are between."""
    mesh = replace(a_level(domain, 120.0), shares=((2, 1 / 6), (4, 4 / 6), (8, 1.0)))
    levels = (mesh, NODE_AND_CLUSTER[1])
    moved = (ranks - 1) / ranks * 8.0  # GB
    for kind in (all_gather_seconds, all_to_all_seconds):
        seconds = kind(8e9, rank_count=ranks, stride=1.0, levels=levels)
        assert float(seconds) == pytest.approx(moved / (20.0 * links))
    assert float(send_recv_seconds(8e9, distance=1.0, levels=levels)) == pytest.approx(8.0 / 20.0)


def test_a_group_of_one_takes_no_time() -> None:
    seconds = all_reduce_seconds(8e9, rank_count=1.0, stride=1.0, levels=NODE_AND_CLUSTER)
    assert float(seconds) == 0.0


def test_ranks_of_one_node_drive_their_links_together() -> None:
    """16 ranks, 8 in each node: 15/16 of 16 GB at 8 links x 10 GB/s."""
    seconds = all_gather_seconds(16e9, rank_count=16.0, stride=1.0, levels=NODE_AND_CLUSTER)
    assert float(seconds) == pytest.approx(15.0 / 80.0)


def test_the_inner_level_bounds_a_group_that_spans_nodes() -> None:
    """8 links of 20 GB/s would carry 160, but the node's own level only 100."""
    levels = (a_level(8, 100.0), a_level(64, 20.0))
    seconds = all_gather_seconds(16e9, rank_count=16.0, stride=1.0, levels=levels)
    assert float(seconds) == pytest.approx(0.15)


def test_one_rank_of_each_node_has_one_link() -> None:
    """8 ranks, 8 devices apart: 7/8 of 8 GB at 10 GB/s."""
    seconds = all_gather_seconds(8e9, rank_count=8.0, stride=8.0, levels=NODE_AND_CLUSTER)
    assert float(seconds) == pytest.approx(0.7)


def test_all_to_all_is_bound_by_what_leaves_the_node() -> None:
    """Of 16 GB over 16 ranks, 8/16 leave the node at 10 GB/s."""
    seconds = all_to_all_seconds(16e9, rank_count=16.0, stride=1.0, levels=NODE_AND_CLUSTER)
    assert float(seconds) == pytest.approx(0.8)


def test_copies_for_one_node_are_sent_to_it_once() -> None:
    """Two nodes get 2 (1 - 1/2^4) = 1.875 of 4 copies between them, on average."""
    fields = {"rank_count": 16.0, "stride": 1.0, "levels": NODE_AND_CLUSTER}
    seconds = all_to_all_seconds(16e9, **fields, copies=4)
    assert float(seconds) == pytest.approx(0.8 * 1.875 / 4.0)


def test_copies_within_a_node_are_sent_one_by_one() -> None:
    fields = {"rank_count": 8.0, "stride": 1.0, "levels": NODE_AND_CLUSTER}
    assert all_to_all_seconds(8e9, **fields, copies=4) == all_to_all_seconds(8e9, **fields)


def test_neighbours_in_a_node_do_not_use_the_network() -> None:
    seconds = send_recv_seconds(1e9, distance=4.0, levels=NODE_AND_CLUSTER)
    assert float(seconds) == pytest.approx(0.01)


def test_neighbours_in_different_nodes_use_the_network() -> None:
    seconds = send_recv_seconds(1e9, distance=8.0, levels=NODE_AND_CLUSTER)
    assert float(seconds) == pytest.approx(0.1)


def test_latency_and_bandwidth_join_in_a_p_norm() -> None:
    """Exponent 1/2, latency 10 ms, 90 ms of bytes: (sqrt(0.01) + sqrt(0.09))^2 = 0.16."""
    levels = (a_level(8, 100.0, latency_seconds=0.01, norm_exponent=0.5),)
    seconds = all_gather_seconds(72e9 / 7.0, rank_count=8.0, stride=1.0, levels=levels)
    assert float(seconds) == pytest.approx(0.16)


DOMAIN_OF_72 = (a_level(72, 100.0), a_level(1152, 10.0))


def test_a_group_of_eight_lies_within_a_domain_of_72() -> None:
    """7/8 of 8 GB at 100 GB/s, wherever in the cluster the group is."""
    seconds = all_gather_seconds(8e9, rank_count=8.0, stride=1.0, levels=DOMAIN_OF_72)
    assert float(seconds) == pytest.approx(0.07)


def test_a_group_of_sixteen_straddles_domains_of_72() -> None:
    """Ranks 64 to 79 lie on both sides, 8 and 8: 15/16 of 16 GB at 8 links x 10 GB/s."""
    seconds = all_gather_seconds(16e9, rank_count=16.0, stride=1.0, levels=DOMAIN_OF_72)
    assert float(seconds) == pytest.approx(15.0 / 80.0)


def test_a_strided_group_straddles_as_its_whole_block_does() -> None:
    """4 ranks 16 apart fill blocks of 64, and gcd(64, 72) = 8 holds one of them: one link."""
    seconds = all_gather_seconds(4e9, rank_count=4.0, stride=16.0, levels=DOMAIN_OF_72)
    assert float(seconds) == pytest.approx(0.3)


def test_a_group_of_36_fills_half_a_domain_of_72() -> None:
    seconds = all_gather_seconds(36e9, rank_count=36.0, stride=1.0, levels=DOMAIN_OF_72)
    assert float(seconds) == pytest.approx(0.35)


def test_a_straddling_all_to_all_sends_half_over_the_outer_level() -> None:
    seconds = all_to_all_seconds(16e9, rank_count=16.0, stride=1.0, levels=DOMAIN_OF_72)
    assert float(seconds) == pytest.approx(0.8)


def test_a_rack_level_bounds_what_all_its_links_carry() -> None:
    """128 ranks in two racks of 64: 127/128 of 128 GB at 64 links x 1 GB/s."""
    levels = (a_level(8, 100.0), a_level(64, 10.0), a_level(1024, 1.0))
    seconds = all_gather_seconds(128e9, rank_count=128.0, stride=1.0, levels=levels)
    assert float(seconds) == pytest.approx(127.0 / 64.0)


def test_a_level_that_a_group_does_not_span_does_not_bound_it() -> None:
    """One rank in each node: the node's own slow links of 1 GB/s carry nothing."""
    levels = (a_level(8, 1.0), a_level(64, 10.0))
    seconds = all_gather_seconds(8e9, rank_count=8.0, stride=8.0, levels=levels)
    assert float(seconds) == pytest.approx(0.7)


def test_each_level_adds_its_own_latency() -> None:
    """8 in a node (3 steps of 3 ms / 3), 4 nodes (2 steps of 30 ms / 3)."""
    levels = (
        a_level(8, 1e9, latency_seconds=0.003),
        a_level(32, 1e9, latency_seconds=0.03),
    )
    seconds = all_reduce_seconds(1.0, rank_count=32.0, stride=1.0, levels=levels)
    assert float(seconds) == pytest.approx(0.003 + 0.02)


def test_a_ring_over_nodes_waits_for_every_hop() -> None:
    """4 times 7 hops in nodes of 8, less the 7 that the fit has, and 3 from node to node."""
    levels = (
        a_level(8, 1e9, latency_seconds=0.004),
        a_level(32, 1e9, latency_seconds=0.03),
    )
    tree = all_reduce_seconds(1.0, rank_count=32.0, stride=1.0, levels=levels)
    ring = all_gather_seconds(1.0, rank_count=32.0, stride=1.0, levels=levels)
    assert float(ring - tree) == pytest.approx(21 * 0.001 + 3 * 0.03)


def test_hops_grow_with_the_ranks_of_a_ring_and_spare_one_within_a_node() -> None:
    levels = (a_level(8, 1e9, latency_seconds=0.004), a_level(1024, 1e9, latency_seconds=0.03))
    few, more = (
        float(all_gather_seconds(0.0, rank_count=n, stride=1.0, levels=levels))
        for n in (512.0, 1024.0)
    )
    assert more - few == pytest.approx(64 * 7 * 0.001 + 64 * 0.03 + 0.01)
    inside = all_gather_seconds(0.0, rank_count=8.0, stride=1.0, levels=levels)
    assert float(inside) == pytest.approx(0.004)


def test_ranks_alone_in_their_nodes_pass_none_but_the_outer_links() -> None:
    levels = (a_level(8, 1e9, latency_seconds=0.004), a_level(64, 1e9, latency_seconds=0.03))
    seconds = all_gather_seconds(0.0, rank_count=8.0, stride=8.0, levels=levels)
    assert float(seconds) == pytest.approx(7 * 0.03 + 0.03)


def test_switches_reduce_only_for_more_than_four_ranks() -> None:
    levels = (a_level(8, 100.0, all_reduce_bandwidth_ratio=1.5),)
    four = all_reduce_seconds(4e9, rank_count=4.0, stride=1.0, levels=levels)
    eight = all_reduce_seconds(8e9, rank_count=8.0, stride=1.0, levels=levels)
    assert float(four) == pytest.approx(0.06)
    assert float(eight) == pytest.approx(0.14 / 1.5)


def test_a_ring_passes_pieces_over_one_link() -> None:
    """16 ranks on two nodes: 15 steps, each as slow as the 1 GB that crosses at 10 GB/s."""
    seconds = Group(rank_count=16.0, stride=1.0, levels=NODE_AND_CLUSTER).ring_pass(1e9)
    assert float(seconds) == pytest.approx(1.5)


def test_a_ring_of_one_passes_nothing() -> None:
    seconds = Group(rank_count=1.0, stride=1.0, levels=NODE_AND_CLUSTER).ring_pass(1e9)
    assert float(seconds) == 0.0


def test_a_send_is_priced_at_every_level() -> None:
    seconds = send_recv_seconds_by_level([[1e9], [0.0]], NODE_AND_CLUSTER)
    assert seconds.shape == (2, 1, 2)
    assert seconds[0, 0].tolist() == pytest.approx([0.01, 0.1])
    assert seconds[1, 0].tolist() == [0.0, 0.0]


def test_a_send_waits_for_a_third_of_the_latency_of_eight() -> None:
    levels = (a_level(8, 1e9, latency_seconds=0.03),)
    assert send_recv_seconds_by_level(1.0, levels).tolist() == pytest.approx([0.01])


@pytest.mark.parametrize("price", [all_gather_seconds, all_reduce_seconds, all_to_all_seconds])
def test_columns_of_groups_are_priced_one_by_one(price: Callable[..., Floats]) -> None:
    """Groups of 1, 8, 16 and 9 in one column cost what they cost alone."""
    counts = np.array([[1.0], [8.0], [16.0], [9.0]])
    strides = np.array([[4.0], [1.0], [3.0], [8.0]])
    together = price(1e9, rank_count=counts, stride=strides, levels=DOMAIN_OF_72)
    alone = [
        float(price(1e9, rank_count=n, stride=d, levels=DOMAIN_OF_72))
        for n, d in zip(counts[:, 0], strides[:, 0], strict=True)
    ]
    assert together[:, 0].tolist() == pytest.approx(alone)
    assert alone[0] == 0.0


def smallest_part(domain: int, rank_count: int, stride: int) -> int:
    """The fewest ranks of one group that any domain holds, over groups all along the devices."""
    span = rank_count * stride
    least = rank_count
    for block in range(domain):
        for offset in range(stride):
            devices = [block * span + offset + rank * stride for rank in range(rank_count)]
            least = min(least, *Counter(device // domain for device in devices).values())
    return least


def links_priced(domain: int, rank_count: int, stride: int) -> float:
    """How many links of 1 GB/s an all_gather is taken to have beyond a domain; inside is free."""
    levels = (a_level(domain, 1e9), a_level(10**6, 1.0))
    seconds = float(all_gather_seconds(1e9, rank_count=rank_count, stride=stride, levels=levels))
    return (rank_count - 1) / rank_count / seconds


@pytest.mark.parametrize("domain", [4, 6, 8, 12, 72])
@pytest.mark.parametrize("stride", [1, 2, 3, 8])
def test_no_group_is_placed_worse_than_it_is_priced(domain: int, stride: int) -> None:
    """Wherever a group straddles domains, each part has at least the links that are priced."""
    for rank_count in (2, 3, 4, 5, 8, 10, 16, 20, 24):
        if domain % (rank_count * stride) == 0:
            continue
        priced = links_priced(domain, rank_count, stride)
        least = smallest_part(domain, rank_count, stride)
        assert priced <= least + 1e-6
        if stride == 1:
            assert priced == pytest.approx(least)


def test_a_collective_of_its_own_takes_its_own_time() -> None:
    """3/4 of 4 GB at half of 2 GB/s, after log2(4) / 3 of 3 ms and a hop of a quarter of it."""
    own = OwnCollective(
        kind="reduce_scatter", bandwidth_ratio=0.5, latency_seconds=3e-3, norm_exponent=1.0
    )
    level = Level(
        name="machine",
        device_count=4,
        bandwidth_bytes_per_second=2e9,
        latency_seconds=0.0,
        norm_exponent=1.0,
        all_reduce_bandwidth_ratio=1.0,
        collectives=(own,),
    )
    at = {"rank_count": 4.0, "stride": 1.0, "levels": (level,)}
    assert float(reduce_scatter_seconds(4e9, **at)) == pytest.approx(3.0 + 0.002)
    assert float(all_gather_seconds(4e9, **at)) == pytest.approx(1.5)
