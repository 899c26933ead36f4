"""Device profiles: what must hold of every one that ships, whatever was measured for it."""

from __future__ import annotations

import itertools

import pytest

from planner.cost.collectives import (
    all_gather_seconds,
    all_reduce_seconds,
    all_to_all_seconds,
    reduce_scatter_seconds,
    send_recv_seconds,
)
from planner.hardware import cluster_hardware, device_names, device_profile, stack_profile
from planner.hardware_profiles import DeviceProfile, in_situ_efficiency
from planner.network import Level
from planner.rates import AttentionRate
from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.job import Precision, Stack

PROFILES = [device_profile(name) for name in device_names()]
ACCELERATORS = [profile for profile in PROFILES if profile.kind == "cuda"]
NARROWING = (Precision.FP32, Precision.BF16, Precision.FP8)
MESSAGE_BYTES = (2.0**10, 2.0**16, 2.0**20, 2.0**24, 2.0**30)
GROWING = {
    "all_gather": all_gather_seconds,
    "all_reduce": all_reduce_seconds,
    "all_to_all": all_to_all_seconds,
    "reduce_scatter": reduce_scatter_seconds,
}

of_every_profile = pytest.mark.parametrize("profile", PROFILES, ids=lambda p: p.device)
of_every_accelerator = pytest.mark.parametrize("profile", ACCELERATORS, ids=lambda p: p.device)


def levels_of_nodes(profile: DeviceProfile, *, node_count: int) -> tuple[Level, ...]:
    """The levels of whole nodes of a device."""
    node = profile.node
    assert node is not None
    group = NodeGroup(
        name="nodes",
        device=profile.device,
        node_count=node_count,
        devices_per_node=node.device_count or 8,
    )
    (kind,) = cluster_hardware(Cluster(name="whole", node_groups=(group,))).kinds
    return kind.levels


def achieved(profile: DeviceProfile, precision: Precision) -> float:
    """The rate of large products alone, in TFLOP/s."""
    return profile.peak_tflop_per_second[precision] * profile.gemm.rate(precision).efficiency


def attention_rates(profile: DeviceProfile) -> list[AttentionRate]:
    """The rates of fused attention that stacks reach."""
    return [profile.attention.rate(stack) for stack in Stack]


@of_every_profile
def test_no_level_is_slower_than_the_one_around_it(profile: DeviceProfile) -> None:
    for inner, outer in itertools.pairwise(profile.levels):
        assert inner.bandwidth_gb_per_second >= outer.bandwidth_gb_per_second


@of_every_profile
def test_levels_grow_outwards_and_the_last_holds_the_cluster(profile: DeviceProfile) -> None:
    *inner, last = [level.device_count for level in profile.levels]
    assert last is None
    assert None not in inner
    assert inner == sorted(set(inner))  # type: ignore[type-var]


@of_every_profile
def test_fewer_bits_are_no_slower(profile: DeviceProfile) -> None:
    peaks = profile.peak_tflop_per_second
    for wide, narrow in itertools.pairwise(NARROWING):
        assert peaks[narrow] >= peaks[wide]
        assert achieved(profile, narrow) >= achieved(profile, wide)


@of_every_profile
def test_eight_bits_are_at_most_twice_as_fast_as_sixteen(profile: DeviceProfile) -> None:
    peaks = profile.peak_tflop_per_second
    assert peaks[Precision.FP8] <= 2.05 * peaks[Precision.BF16]
    assert achieved(profile, Precision.FP8) <= 2.05 * achieved(profile, Precision.BF16)


@of_every_accelerator
def test_attention_is_no_faster_than_the_peak_and_backward_no_faster_than_forward(
    profile: DeviceProfile,
) -> None:
    for rate in attention_rates(profile):
        assert rate.forward_tflop_per_second < profile.peak_tflop_per_second[Precision.BF16]
        assert rate.backward_tflop_per_second <= rate.forward_tflop_per_second


@of_every_accelerator
def test_torch_has_no_faster_attention_than_the_fastest_there_is(profile: DeviceProfile) -> None:
    fastest, torch = profile.attention, profile.attention.rate(Stack.TORCH)
    assert torch.forward_tflop_per_second <= fastest.forward_tflop_per_second
    assert torch.backward_tflop_per_second <= fastest.backward_tflop_per_second


@of_every_accelerator
def test_memory_is_faster_than_links_and_links_are_no_faster_than_sold(
    profile: DeviceProfile,
) -> None:
    memory = profile.memory_bandwidth_gb_per_second * profile.memory_efficiency
    assert all(level.bandwidth_gb_per_second < memory for level in profile.levels)
    assert profile.host.to_device_gb_per_second < memory
    assert profile.host.from_device_gb_per_second < memory


@of_every_profile
@pytest.mark.parametrize("stack", list(Stack))
def test_kernels_in_a_step_are_no_faster_than_alone(profile: DeviceProfile, stack: Stack) -> None:
    assert 0.5 <= in_situ_efficiency(profile, stack_profile(stack)) <= 1.0


@of_every_profile
@pytest.mark.parametrize("kind", sorted(GROWING))
def test_larger_messages_take_no_less(profile: DeviceProfile, kind: str) -> None:
    levels = levels_of_nodes(profile, node_count=1)
    for rank_count in (2, 4, levels[0].device_count):
        seconds = [
            float(GROWING[kind](n, rank_count=rank_count, stride=1, levels=levels))
            for n in MESSAGE_BYTES
        ]
        assert seconds == sorted(seconds)


@of_every_accelerator
@pytest.mark.parametrize("kind", ["all_gather", "all_reduce", "reduce_scatter"])
def test_a_node_is_no_slower_than_as_many_devices_of_different_nodes(
    profile: DeviceProfile, kind: str
) -> None:
    own = profile.node
    assert own is not None
    size = own.device_count or 8
    levels = levels_of_nodes(profile, node_count=2 * size)
    inside, across = (
        float(GROWING[kind](2.0**30, rank_count=size, stride=stride, levels=levels))
        for stride in (1, size)
    )
    assert inside <= across


@of_every_accelerator
def test_a_whole_node_takes_less_than_four_times_a_pair(profile: DeviceProfile) -> None:
    """A ring moves 2 (n - 1) / n of a large message: less than twice as much over any node."""
    levels = levels_of_nodes(profile, node_count=1)
    pair, node = (
        float(all_reduce_seconds(2.0**28, rank_count=n, stride=1, levels=levels))
        for n in (2, levels[0].device_count)
    )
    assert node < 4.0 * pair


@of_every_accelerator
def test_a_message_takes_no_less_over_an_outer_level(profile: DeviceProfile) -> None:
    levels = levels_of_nodes(profile, node_count=4)
    outermost = levels[-1].device_count - 1
    near, far = (
        float(send_recv_seconds(2.0**26, distance=distance, levels=levels))
        for distance in (1, outermost)
    )
    assert near <= far


@pytest.mark.parametrize(
    ("name", "measured"),
    [("rtx-pro-6000-96gb", 77.0), ("rtx-4090-24gb", 54.0), ("rtx-3090-24gb", 25.0)],
)
def test_cards_run_fp32_without_tensor_cores(name: str, measured: float) -> None:
    """As torch does unless it is asked for TF32; a third to a fifth of 16 bits."""
    assert achieved(device_profile(name), Precision.FP32) == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize(
    ("name", "has"),
    [
        ("a100-sxm4-80gb", True),
        ("mi300x-192gb", True),
        ("mi355x-288gb", False),
        ("t4-16gb", False),
        ("cpu-gloo", False),
    ],
)
def test_devices_have_tf32_where_bf16_has_hardware_and_their_profile_does_not_deny_it(
    name: str, *, has: bool
) -> None:
    assert device_profile(name).has_tensor_float_32 is has


def test_cards_before_hopper_fuse_no_heads_of_two_sizes() -> None:
    """Those of Volta, Turing, Ampere and Ada, whatever they are sold as."""
    earlier = ("v100", "t4", "titan", "a1", "a30", "a40", "a800", "rtx-3", "rtx-a", "l4", "l20")
    earlier += ("rtx-4", "rtx-6000-ada")
    for profile in PROFILES:
        assert profile.fuses_unlike_heads is not profile.device.startswith(earlier), profile.device
