"""Collectives on levels: hand-counted bytes over hand-picked bandwidths."""

from __future__ import annotations

import pytest

from planner.cost.collectives import (
    all_gather_seconds,
    all_reduce_seconds,
    all_to_all_seconds,
    send_recv_seconds,
)
from planner.hardware import Level


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
