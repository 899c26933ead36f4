"""Hardware: profiles are whole, and clusters take their figures from them."""

from __future__ import annotations

from itertools import groupby, permutations

import pytest

from planner.errors import InputError
from planner.hardware import (
    DeviceHardware,
    cluster_hardware,
    device_names,
    device_profile,
    stack_profile,
)
from planner.hardware_profiles import in_situ_efficiency
from planner.importers.clusters import cluster_from_short_form
from planner.schema.cluster import Cluster, NetworkLevel, NodeGroup
from planner.schema.job import Precision, Stack
from planner.units import GIB
from tests.builders import a_cluster


def only_kind(cluster: Cluster) -> DeviceHardware:
    """The devices of a cluster of one kind."""
    (kind,) = cluster_hardware(cluster).kinds
    return kind


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
    assert only_kind(a_cluster()).peak_flop_per_second[Precision.BF16] == 989e12


def test_the_outermost_level_spans_the_cluster() -> None:
    hardware = only_kind(a_cluster(node_groups=(a_group(),)))
    assert [level.device_count for level in hardware.levels] == [8, 16]


def test_a_node_of_four_cuts_the_innermost_domain() -> None:
    hardware = only_kind(a_cluster(node_groups=(a_group(devices_per_node=4),)))
    assert hardware.levels[0].device_count == 4


def test_a_cluster_overrides_memory_and_price() -> None:
    group = a_group(memory_bytes=64 * GIB, price_per_device_hour=1.5)
    hardware = only_kind(a_cluster(node_groups=(group,)))
    assert (hardware.device_memory_bytes, hardware.price_per_device_hour) == (64 * GIB, 1.5)


def test_a_free_device_costs_nothing() -> None:
    """A price of 0 is a price, not a missing one."""
    hardware = only_kind(a_cluster(node_groups=(a_group(price_per_device_hour=0.0),)))
    assert hardware.price_per_device_hour == 0.0


def test_host_memory_is_shared_by_a_nodes_devices() -> None:
    hardware = only_kind(a_cluster(node_groups=(a_group(host_memory_bytes=800 * GIB),)))
    assert hardware.host_memory_bytes_per_device == 100 * GIB


def test_oversubscription_divides_a_levels_bandwidth() -> None:
    level = NetworkLevel(
        name="spine", bandwidth_bytes_per_second=40e9, latency_seconds=1e-5, oversubscription=4.0
    )
    cluster = Cluster(name="two nodes", node_groups=(a_group(),), levels=(level,))
    assert only_kind(cluster).levels[0].bandwidth_bytes_per_second == 10e9


def a_level(name: str, device_count: int | None, **changes: float) -> NetworkLevel:
    """A level of 40 GB/s."""
    fields = {"bandwidth_bytes_per_second": 40e9, "latency_seconds": 1e-5, **changes}
    return NetworkLevel.model_validate({"name": name, "device_count": device_count, **fields})


def test_a_rack_level_may_be_oversubscribed() -> None:
    """Nodes of eight, racks of 64, and a spine at a quarter."""
    levels = (
        a_level("node", 8),
        a_level("rack", 64),
        a_level("spine", None, oversubscription=4.0),
    )
    hardware = only_kind(a_cluster(node_groups=(a_group(node_count=32),), levels=levels))
    assert [level.device_count for level in hardware.levels] == [8, 64, 256]
    assert [level.bandwidth_bytes_per_second for level in hardware.levels] == [40e9, 40e9, 10e9]


def test_levels_are_whole_nodes_or_equal_parts_of_one() -> None:
    levels = (a_level("odd", 12), a_level("all", None))
    with pytest.raises(InputError, match=r"levels\.0\.device_count.*nor is a multiple of the 8"):
        cluster_hardware(a_cluster(node_groups=(a_group(),), levels=levels))


def test_the_outermost_level_connects_all() -> None:
    with pytest.raises(InputError, match="connects fewer than the cluster's 16 devices"):
        cluster_hardware(a_cluster(node_groups=(a_group(),), levels=(a_level("node", 8),)))


@pytest.mark.parametrize(
    ("nodes", "domains"),
    [
        ("18x4xgb200-nvl72", [72, 72]),
        ("36x4xgb200-nvl72", [72, 144]),
        ("2x4xgb300-nvl72", [8, 8]),
        ("32x4xgb200-nvl72", [64, 128]),
        ("64x4xgb200-nvl72", [64, 256]),
        ("48x4xgb200-nvl72", [64, 192]),
        ("37x4xgb200-nvl72", [72, 148]),
        ("16x5xgb200-nvl72", [40, 80]),
        ("1x72xgb200-nvl72", [72, 72]),
        ("4x4xh100-sxm5-80gb", [4, 16]),
        ("4x6xh100-sxm5-80gb", [6, 24]),
        ("4x12xh100-sxm5-80gb", [12, 48]),
        ("4x16xv100-sxm2-32gb", [16, 64]),
        ("1x16xl40s-48gb", [16, 16]),
        ("2x8xl40s-48gb", [8, 16]),
        ("3x1xl40s-48gb", [1, 3]),
    ],
)
def test_domains_are_whole_nodes_or_equal_parts_of_one(nodes: str, domains: list[int]) -> None:
    node_count, per_node, device = nodes.split("x", 2)
    group = a_group(device=device, node_count=int(node_count), devices_per_node=int(per_node))
    kind = only_kind(a_cluster(node_groups=(group,)))
    assert [level.device_count for level in kind.levels] == domains


def test_kinds_share_a_network_as_narrow_as_the_narrowest() -> None:
    """Each keeps its own networks within: 36.5 GB/s among H100 and 18.25 among A100."""
    other = a_group(name="a100", device="a100-sxm4-80gb", node_count=4)
    new, old = cluster_hardware(a_cluster(node_groups=(a_group(), other))).kinds
    assert [level.device_count for level in new.levels] == [8, 16, 48]
    assert [level.device_count for level in old.levels] == [8, 32, 48]
    assert [level.bandwidth_bytes_per_second for level in new.levels[1:]] == [36.5e9, 18.25e9]
    assert new.levels[-1] == old.levels[-1]


def test_a_documents_levels_hold_for_all_kinds() -> None:
    other = a_group(name="a100", device="a100-sxm4-80gb")
    levels = (a_level("node", 8), a_level("spine", None))
    hardware = cluster_hardware(a_cluster(node_groups=(a_group(), other), levels=levels))
    assert [[level.device_count for level in kind.levels] for kind in hardware.kinds] == [
        [8, 32],
        [8, 32],
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"devices_per_node": 4},
        {"memory_bytes": 64 * GIB},
        {"host_memory_bytes": 64 * GIB},
        {"host_bandwidth_bytes_per_second": 1e10},
    ],
)
def test_nodes_that_hold_something_else_are_another_kind(other: dict[str, float]) -> None:
    cluster = a_cluster(node_groups=(a_group(), a_group(name="other", **other)))
    assert len(cluster_hardware(cluster).kinds) == 2


def test_nodes_at_another_price_are_the_same_kind() -> None:
    """16 at 2 dollars and 16 at 4."""
    groups = (a_group(price_per_device_hour=2), a_group(name="dear", price_per_device_hour=4))
    kind = only_kind(a_cluster(node_groups=groups))
    assert (kind.node_groups, kind.device_count) == (("h100", "dear"), 32)
    assert kind.price_per_device_hour == 3.0


def test_kinds_of_devices_are_kept_apart() -> None:
    """Each kind has its own count, and stages follow one another kind by kind."""
    other = a_group(name="a100", device="a100-sxm4-80gb", node_count=4)
    hardware = cluster_hardware(a_cluster(node_groups=(a_group(), other)))
    assert [kind.device_count for kind in hardware.kinds] == [16, 32]
    assert hardware.stage_kinds(1, pipeline_parallel_degree=6) == (1, 1, 1, 1, 0, 0)


def stages_on(first: int, second: int, *, returns: int, **group: int) -> list[str]:
    """The orders of stages of one device on so many nodes of A and of B."""
    fields = {"devices_per_node": 1, **group}
    groups = (
        a_group(name="a", node_count=first, **fields),
        a_group(name="b", device="a100-sxm4-80gb", node_count=second, **fields),
    )
    hardware = cluster_hardware(a_cluster(node_groups=groups))
    orders = hardware.stage_orders(hardware.device_count, returns=returns)
    return ["".join("AB"[kind] for kind in order) for order in orders]


def test_the_pipeline_comes_back_to_kinds_as_often_as_it_may() -> None:
    assert stages_on(2, 2, returns=0) == ["AABB", "BBAA"]
    assert stages_on(2, 2, returns=1) == ["AABB", "BBAA", "ABBA", "BAAB"]
    assert stages_on(2, 2, returns=8) == ["AABB", "BBAA", "ABBA", "BAAB", "ABAB", "BABA"]
    assert stages_on(3, 1, returns=1) == ["AAAB", "BAAA", "ABAA", "AABA"]


def test_stages_between_those_of_another_kind_fill_whole_nodes() -> None:
    """Two devices a node: of one node's nothing can stand on both sides."""
    assert stages_on(1, 1, returns=8, devices_per_node=2) == ["AABB", "BBAA"]
    four_and_two = stages_on(2, 1, returns=8, devices_per_node=2)
    assert four_and_two == ["AAAABB", "BBAAAA", "AABBAA"]


@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 3), (4, 2), (4, 4)])
def test_every_order_of_stages_is_there_once(first: int, second: int) -> None:
    found = stages_on(first, second, returns=8)
    every = {"".join(order) for order in permutations("A" * first + "B" * second)}
    assert len(found) == len(set(found))
    assert set(found) == every
    runs = [len(list(groupby(order))) for order in found]
    assert runs == sorted(runs)


def test_an_order_is_known_by_its_place_whatever_the_limit() -> None:
    other = a_group(name="a100", device="a100-sxm4-80gb", node_count=2)
    hardware = cluster_hardware(a_cluster(node_groups=(a_group(), other)))
    orders = hardware.stage_orders(4, returns=1)
    assert [hardware.stage_kinds(i, pipeline_parallel_degree=4) for i in range(4)] == list(orders)


def test_too_many_kinds_are_refused_with_a_remedy() -> None:
    groups = tuple(a_group(name=f"g{i}", devices_per_node=i) for i in range(1, 6))
    with pytest.raises(InputError, match="at most 4 kinds"):
        cluster_hardware(a_cluster(node_groups=groups))


def test_products_in_8_bits_are_as_much_faster_as_the_fastest_are() -> None:
    """3432 over 1745 TFLOP/s on a B200 (stas00/ml-engineering), of a peak twice as high."""
    profile = device_profile("b200-sxm-180gb")
    eight, sixteen = (profile.gemm.rate(p) for p in (Precision.FP8, Precision.BF16))
    ratio = eight.efficiency * 4500 / (sixteen.efficiency * 2250)
    assert ratio == pytest.approx(3432 / 1745, rel=0.01)


def test_a_device_without_figures_for_8_bits_takes_those_of_16() -> None:
    gemm = device_profile("a100-sxm4-80gb").gemm
    assert gemm.rate(Precision.FP8) is gemm


def test_torch_on_an_h100_runs_the_attention_kernels_of_an_a100() -> None:
    """319 TFLOP/s forward at 4,096 tokens, FlashAttention-3 540 to 580 (arXiv:2407.08608)."""
    attention = device_profile("h100-sxm5-80gb").attention

    def rate(stack: Stack) -> float:
        own = attention.rate(stack)
        return own.forward_tflop_per_second * 4096 / (4096 + own.forward_tokens_half)

    assert rate(Stack.TORCH) == pytest.approx(319, rel=0.02)
    assert rate(Stack.MEGATRON) == pytest.approx(540, rel=0.05)


@pytest.mark.parametrize(
    ("device", "second", "third"),
    [
        ("h100-pcie-80gb", 217.0, 390.0),
        ("h100-nvl-94gb", 242.0, 434.0),
        ("h200-nvl-141gb", 291.0, 523.0),
        ("h200-sxm5-141gb", 345.0, 620.0),
        ("h800-sxm5-80gb", 345.0, 620.0),
        ("h20-sxm-96gb", 100.0, 110.0),
        ("gh200-96gb", 345.0, 620.0),
    ],
)
def test_every_card_with_hoppers_chip_has_both_generations(
    device: str, second: float, third: float
) -> None:
    """345 and 620 TFLOP/s forward on an H100 SXM, whose products others reach a part of."""
    attention = device_profile(device).attention
    assert attention.rate(Stack.TORCH).forward_tflop_per_second == second
    assert attention.rate(Stack.MEGATRON, 2).forward_tflop_per_second == second
    assert attention.rate(Stack.TORCH, 3).forward_tflop_per_second == third


@pytest.mark.parametrize("device", ["b200-sxm-180gb", "gb300-nvl72", "mi300x-192gb"])
def test_the_second_generation_is_torchs_kernel_whatever_the_stack(device: str) -> None:
    attention = device_profile(device).attention
    assert attention.rate(Stack.MEGATRON, 2) == attention.by_stack[Stack.TORCH]


@pytest.mark.parametrize("device", ["a100-sxm4-80gb", "b200-sxm-180gb", "mi300x-192gb"])
def test_the_third_generation_runs_on_hopper_alone(device: str) -> None:
    attention = device_profile(device).attention
    assert attention.rate(Stack.MEGATRON, 3) == attention.rate(Stack.MEGATRON)


def test_efficiency_inside_a_step_is_the_devices_own_before_the_stacks_on_it() -> None:
    torch = stack_profile(Stack.TORCH)
    assert set(torch.in_situ_by_device) <= set(device_names())
    h100 = device_profile("h100-sxm5-80gb")
    own = h100.model_copy(update={"in_situ_efficiency": 0.5})
    found = [in_situ_efficiency(d, torch) for d in (h100, own, device_profile("l4-24gb"))]
    assert found == [0.71, 0.5, 0.8]


def test_what_reaches_its_rated_clock_loses_in_a_step_what_an_a100_does() -> None:
    """Power, which Hopper's boards lack, does not bind where tensor cores are slowed."""
    torch = stack_profile(Stack.TORCH)
    profiles = [device_profile(name) for name in device_names()]
    bound = {p.device for p in profiles if p.kind == "cuda" and p.gemm.efficiency >= 0.9}
    assert {"rtx-3090-24gb", "rtx-4090-24gb"} <= bound
    kept = {name for name, ratio in torch.in_situ_by_device.items() if ratio == 0.9}
    assert {name for name in kept if not name.startswith(("a100-", "a800-"))} == bound


def test_products_at_fp32_have_a_rate_of_their_own_where_tensor_cores_have_none() -> None:
    v100, h200 = (device_profile(name) for name in ("v100-sxm2-32gb", "h200-sxm5-141gb"))
    assert v100.gemm.rate(Precision.FP32).efficiency == 0.93
    assert v100.gemm.rate(Precision.FP16) is v100.gemm
    reached = h200.gemm.rate(Precision.FP32).efficiency * h200.peak_tflop_per_second[Precision.FP32]
    assert reached == pytest.approx(50.7, rel=0.01)  # docs/gpu.md


def own_kind(**fields: object) -> DeviceHardware:
    """A device of a cluster's own, `ours`, with these fields of a profile."""
    group = a_group(device="ours", memory_bytes=64e9, host_memory_bytes=1e12)
    return only_kind(Cluster(name="c", node_groups=(group,), device_profiles={"ours": fields}))


def test_a_device_of_ones_own_is_like_a_shipped_one_but_for_what_differs() -> None:
    own = own_kind(
        like="h100-sxm5-80gb",
        memory_bandwidth_gb_per_second=2020,
        host={"to_device_gb_per_second": 20, "from_device_gb_per_second": 20},
    ).profile
    known = device_profile("h100-sxm5-80gb")

    assert own.memory_bandwidth_gb_per_second == 2020.0
    assert own.host.to_device_gb_per_second == 20.0
    assert own.host.optimizer_gb_per_second == known.host.optimizer_gb_per_second
    assert (own.gemm, own.attention, own.levels) == (known.gemm, known.attention, known.levels)
    assert not own.compared_with_runs
    assert own.learnt_stacks == ()


def test_rates_that_it_leaves_out_go_with_its_peak_in_bf16() -> None:
    own = own_kind(
        like="h100-sxm5-80gb",
        peak_tflop_per_second={"bf16": 494.5, "fp32": 60},
        attention={"backward_tflop_per_second": 100},
    ).profile
    known = device_profile("h100-sxm5-80gb")

    assert own.peak_tflop_per_second == pytest.approx(
        {Precision.BF16: 494.5, Precision.FP16: 494.5, Precision.FP32: 60.0, Precision.FP8: 989.5}
    )
    forward = known.attention.forward_tflop_per_second
    assert own.attention.forward_tflop_per_second == pytest.approx(forward / 2.0)
    assert own.attention.forward_tokens_half == known.attention.forward_tokens_half
    assert own.attention.backward_tflop_per_second == 100.0
    flash = own.attention.by_stack[Stack.TORCH].forward_tflop_per_second
    known_flash = known.attention.by_stack[Stack.TORCH].forward_tflop_per_second
    assert flash == pytest.approx(known_flash / 2.0)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"like": "h100"}, "cluster.device_profiles.ours.like"),
        ({"like": 4}, "cluster.device_profiles.ours.like"),
        ({"like": "ours"}, "cluster.device_profiles.ours.like"),
        ({"like": "l4-24gb", "memory_bandwidth": 3}, "memory_bandwidth"),
        ({"like": "l4-24gb", "peak_tflop_per_second": {"bf16": -3}}, "peak_tflop_per_second.bf16"),
        ({"like": "l4-24gb", "device": "l4-24gb"}, "cluster.device_profiles.ours.device"),
    ],
)
def test_a_device_of_ones_own_that_is_like_none_is_refused(
    fields: dict[str, object], field: str
) -> None:
    with pytest.raises(InputError) as refused:
        own_kind(**fields)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("device", "node", "shares"),
    [
        ("v100-sxm2-32gb", 8, ((2, 1 / 6), (4, 4 / 6), (8, 1.0))),
        ("v100-sxm2-32gb", 4, ((2, 1 / 6), (4, 4 / 6), (8, 1.0))),
        ("v100-sxm2-32gb", 16, ()),
        ("mi300x-192gb", 8, ((2, 1 / 7), (4, 3 / 7), (8, 1.0))),
        ("h100-sxm5-80gb", 8, ()),
    ],
)
def test_devices_that_no_switch_joins_have_the_links_within_a_group(
    device: str, node: int, shares: tuple[tuple[int, float], ...]
) -> None:
    """Of six links of a V100 and seven of an MI300X; sixteen V100 are joined by switches."""
    (kind,) = cluster_hardware(cluster_from_short_form(f"2x{node}x{device}")).kinds
    assert kind.levels[0].shares == shares
    assert kind.levels[-1].shares == ()
