"""Hardware: profiles are whole, and clusters take their figures from them."""

from __future__ import annotations

import pytest

from planner.errors import InputError
from planner.hardware import cluster_hardware, device_names, device_profile, stack_profile
from planner.schema.cluster import Cluster, NetworkLevel, NodeGroup
from planner.schema.job import Precision, Stack
from planner.units import GIB
from tests.builders import a_cluster


def a_group(**changes: object) -> NodeGroup:
    """Two nodes of eight H100."""
    fields = {"name": "h100", "device": "h100-sxm5-80gb", "node_count": 2, "devices_per_node": 8}
    return NodeGroup.model_validate({**fields, **changes})


@pytest.mark.parametrize("name", device_names())
def test_every_profile_is_valid_and_named_for_its_file(name: str) -> None:
    assert device_profile(name).device == name


@pytest.mark.parametrize("name", device_names())
def test_every_profile_has_a_rate_for_every_precision(name: str) -> None:
    assert set(device_profile(name).peak_tflop_per_second) == set(Precision)


@pytest.mark.parametrize("stack", list(Stack))
def test_every_stack_has_a_profile_of_its_own(stack: Stack) -> None:
    assert stack_profile(stack).stack is stack


def test_an_unknown_device_is_refused_with_close_names() -> None:
    with pytest.raises(InputError, match="h100-sxm5-80gb"):
        device_profile("h100-sxm-80gb")


def test_rates_are_in_si_units() -> None:
    assert cluster_hardware(a_cluster()).peak_flop_per_second[Precision.BF16] == 989e12


def test_the_outermost_level_spans_the_cluster() -> None:
    hardware = cluster_hardware(a_cluster(node_groups=(a_group(),)))
    assert [level.device_count for level in hardware.levels] == [8, 16]


def test_a_node_of_four_cuts_the_innermost_domain() -> None:
    hardware = cluster_hardware(a_cluster(node_groups=(a_group(devices_per_node=4),)))
    assert hardware.levels[0].device_count == 4


def test_a_cluster_overrides_memory_and_price() -> None:
    group = a_group(memory_bytes=64 * GIB, price_per_device_hour=1.5)
    hardware = cluster_hardware(a_cluster(node_groups=(group,)))
    assert (hardware.device_memory_bytes, hardware.price_per_device_hour) == (64 * GIB, 1.5)


def test_a_free_device_costs_nothing() -> None:
    """A price of 0 is a price, not a missing one."""
    hardware = cluster_hardware(a_cluster(node_groups=(a_group(price_per_device_hour=0.0),)))
    assert hardware.price_per_device_hour == 0.0


def test_host_memory_is_shared_by_a_nodes_devices() -> None:
    hardware = cluster_hardware(a_cluster(node_groups=(a_group(host_memory_bytes=800 * GIB),)))
    assert hardware.host_memory_bytes_per_device == 100 * GIB


def test_oversubscription_divides_a_levels_bandwidth() -> None:
    level = NetworkLevel(
        name="spine", bandwidth_bytes_per_second=40e9, latency_seconds=1e-5, oversubscription=4.0
    )
    cluster = Cluster(name="two nodes", node_groups=(a_group(),), levels=(level,))
    assert cluster_hardware(cluster).levels[0].bandwidth_bytes_per_second == 10e9


def test_mixed_devices_are_refused_with_a_remedy() -> None:
    other = a_group(name="a100", device="a100-sxm4-80gb")
    with pytest.raises(InputError, match="plan each group alone"):
        cluster_hardware(a_cluster(node_groups=(a_group(), other)))
