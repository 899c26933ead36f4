"""A profile fitted to figures gives back the machine that they were made of."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest

from planner.calibration.in_situ import InSitu
from planner.cli.machine_profile import device_profile_fields, measured_cluster
from planner.cli.profile import MachineProfile, summary_lines
from planner.cost.collectives import all_gather_seconds, reduce_scatter_seconds
from planner.errors import DocumentError, InputError
from planner.hardware import cluster_hardware, profile_of
from planner.planning import estimate, resolved_cluster, resolved_model
from planner.schema.cluster import Cluster
from planner.schema.figures import MachineFigures
from planner.schema.job import Job, Precision
from planner.schema.scalars import Scalars
from planner.schema.strategy import Strategy

PLATEAU = {"fp32": 50e9, "bf16": 100e9}
HALF = {"fp32": 32, "bf16": 128}
LATENCY, BANDWIDTH = 3e-3, 1e9  # of eight ranks; bytes a second


def figures(**changes: Any) -> MachineFigures:
    """Figures of a machine whose rates follow the formulas exactly, written out here again."""
    return MachineFigures(
        **{
            "device_kind": "cpu",
            "device_name": "cpu",
            "backend": "gloo",
            "rank_count": 4,
            "core_count": 2,
            "device_memory_bytes": 2e9,
            "host_memory_bytes": 8e9,
            "products": [_product(p, k) for p in PLATEAU for k in (64, 256, 1024)],
            "attentions": [_attention(h, s) for h in (32, 128) for s in (128, 512)],
            "memory_bytes_per_second": 10e9,
            "kernel_seconds": 5e-6,
            "host_seconds_per_kernel": 5e-6,
            "optimizer_bytes_per_second": 2e9,
            "to_device_bytes_per_second": 9e9,
            "from_device_bytes_per_second": 8e9,
            "runtime_bytes": 3e8,
            "collectives": [
                _collective(kind, ranks, size)
                for kind in ("all_reduce", "send_recv")
                for ranks in (2, 4)
                for size in (2**12, 2**18, 2**22)
            ],
            "conditions": "made up",
            **changes,
        }
    )


@functools.cache
def fitted() -> Cluster:
    """The cluster of those figures."""
    return measured_cluster(figures())


def _product(precision: str, inner: int) -> dict[str, Any]:
    rate = PLATEAU[precision] * inner / (inner + HALF[precision])
    seconds = 2 * 512 * inner * 512 / rate
    sizes = {"rows": 512, "inner_size": inner, "outer_size": 512}
    return {"precision": precision, **sizes, "seconds": seconds}


def _attention(head_size: int, length: int) -> dict[str, Any]:
    """20 GFLOP/s at heads of 128, 0.8 of it at every halving; backward runs at half the rate."""
    flop = 4 * 8 * 4 * head_size * length * (length + 1) / 2
    rate = 20e9 * 0.8 ** math.log2(128 / head_size)
    return {
        "precision": "fp32",
        "batch": 8,
        "head_count": 4,
        "head_size": head_size,
        "sequence_length": length,
        "forward_seconds": flop / rate,
        "backward_seconds": 2.5 * flop / (rate / 2),
    }


def _collective(kind: str, ranks: int, size: int) -> dict[str, Any]:
    if kind == "send_recv":
        seconds = LATENCY / 3 + size / BANDWIDTH
    else:
        seconds = LATENCY * math.log2(ranks) / 3 + 2 * (ranks - 1) / ranks * size / BANDWIDTH
    return {"kind": kind, "rank_count": ranks, "message_bytes": size, "seconds": seconds}


def test_product_rates_are_recovered() -> None:
    fields = fitted().device_profiles["cpu-measured"]
    assert fields["peak_tflop_per_second"]["fp32"] == pytest.approx(0.05)
    assert fields["peak_tflop_per_second"]["bf16"] == pytest.approx(0.1)
    assert fields["gemm"]["inner_size_half"] == pytest.approx(128)
    assert fields["gemm"]["fp32"]["inner_size_half"] == pytest.approx(32)


def test_products_in_8_bits_have_a_rate_of_their_own() -> None:
    """As fast as in 16 bits where nothing was measured; then no GPU has them."""
    narrow = [{**_product("bf16", inner), "precision": "fp8"} for inner in (64, 256)]
    for item in narrow:
        item["seconds"] /= 1.6
    measured = [*(item.model_dump(mode="json") for item in figures().products), *narrow]
    fields = device_profile_fields(figures(products=measured, device_kind="cuda"))
    assert fields["peak_tflop_per_second"]["fp8"] == pytest.approx(0.16)
    assert fields["gemm"]["fp8"]["inner_size_half"] == pytest.approx(128)
    assert fields["not_in_hardware"] == []
    older = device_profile_fields(figures(device_kind="cuda"))
    assert older["peak_tflop_per_second"]["fp8"] == pytest.approx(0.1)
    assert older["not_in_hardware"] == ["fp8"]
    assert "fp8" not in older["gemm"]


def test_rates_that_fall_with_size_have_no_ramp() -> None:
    falling = [
        {**_product("fp32", inner), "seconds": 2 * 512 * inner * 512 / (1e12 / inner)}
        for inner in (64, 256)
    ]
    rest = [_product("bf16", inner) for inner in (64, 256)]
    fields = device_profile_fields(figures(products=[*falling, *rest]))
    assert fields["gemm"]["fp32"]["inner_size_half"] == 0.0
    # the harmonic mean of 1e12 / 64 and 1e12 / 256
    assert fields["peak_tflop_per_second"]["fp32"] == pytest.approx(1 / 160)


def test_attention_is_recovered_at_heads_of_128() -> None:
    """In fp32 it runs at 20 and 10 GFLOP/s, and products in 16 bits twice as fast as in fp32."""
    attention = fitted().device_profiles["cpu-measured"]["attention"]
    assert attention["half_head_ratio"] == pytest.approx(0.8)
    assert attention["forward_tflop_per_second"] == pytest.approx(0.04)
    assert attention["backward_tflop_per_second"] == pytest.approx(0.02)
    narrow = device_profile_fields(figures(attentions=[_attention(64, 128), _attention(32, 128)]))
    assert narrow["attention"]["forward_tflop_per_second"] == pytest.approx(0.04)


def test_the_network_is_recovered() -> None:
    (level,) = fitted().device_profiles["cpu-measured"]["levels"]
    assert level["latency_us"] == pytest.approx(LATENCY * 1e6, rel=0.1)
    assert level["bandwidth_gb_per_second"] == pytest.approx(1.0, rel=0.1)
    assert level["norm_exponent"] == 1.0


def test_one_rank_alone_has_a_profile_too() -> None:
    cluster = measured_cluster(figures(rank_count=1, collectives=[]))
    assert cluster_hardware(cluster).device_count == 1


def test_a_plan_takes_the_profile() -> None:
    cluster = fitted()
    fields = Cluster.model_validate_json(cluster.to_json()).model_dump(mode="json")
    job = Job(global_batch_size=8, sequence_length=128, precision="fp32")
    answer = estimate(
        resolved_model("tiny-llama-cpu"),
        resolved_cluster(fields),
        job,
        Strategy(data_parallel_degree=4),
    )
    assert answer.cluster.resolved.devices == ("cpu-measured",)
    likely = math.exp(-1.644854 * math.hypot(0.15, 0.11) / 1.281552)  # no run of it was learnt from
    assert answer.prediction.stages[0].capacity_bytes == pytest.approx(likely * 2e9, rel=1e-3)


def test_the_summary_names_what_was_measured() -> None:
    lines = summary_lines(_found(fitted(), figures()))
    assert lines[0] == "4xcpu-measured: made up"
    assert "bf16 100.0, fp32 50.0" in lines[1]
    assert lines[2] == "attention: GFLOP/s fp32 20.0 forward, 10.0 backward"
    assert any(line.startswith("network (gloo): ") for line in lines)


def test_of_one_rank_no_network_is_told() -> None:
    lone = figures(rank_count=1, collectives=[])
    lines = summary_lines(_found(measured_cluster(lone), lone))
    assert not any("network" in line for line in lines)


def _found(cluster: Cluster, measured: MachineFigures) -> MachineProfile:
    """A profile whose steps were as its kernels say."""
    in_situ = InSitu(cluster=cluster, scalars=Scalars(), error_ratio=0.0, variation_ratio=0.0)
    return MachineProfile(cluster=cluster, figures=measured, in_situ=in_situ)


def test_the_name_says_which_gpu_it_is() -> None:
    fields = device_profile_fields(figures(device_kind="cuda", device_name="NVIDIA H200 (SXM)"))
    assert fields["device"] == "cuda-nvidia-h200-sxm-measured"
    assert "overlap" not in fields
    assert fields["in_situ_efficiency"] == 1.0  # until steps have told what it is


def _changed(**changes: Any) -> Cluster:
    cluster = fitted()
    fields = {**cluster.device_profiles["cpu-measured"], **changes}
    return cluster.model_copy(update={"device_profiles": {"cpu-measured": fields}})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"device": "other"}, "cluster.device_profiles.cpu-measured.device"),
        ({"levels": []}, "cluster.device_profiles.cpu-measured.device"),
        ({"peak_tflop_per_second": {"fp32": 1.0}}, "peak_tflop_per_second"),
        ({"kernel_us": -1}, "kernel_us"),
        ({"kernel_us": 1e300}, "cluster.device_profiles.cpu-measured.kernel_us"),
        ({"power_watts": "much"}, "power_watts"),
    ],
)
def test_a_bad_profile_is_refused_by_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        profile_of(_changed(**changes), "cpu-measured")
    assert field in str(caught.value)


def test_a_group_of_an_own_device_states_its_memory() -> None:
    fields = fitted().model_dump(mode="json")
    del fields["node_groups"][0]["memory_bytes"]
    with pytest.raises(DocumentError, match=r"node_groups\.0\.memory_bytes"):
        Cluster.from_fields(fields, source="cluster.json")


def test_every_precision_has_a_rate() -> None:
    rates = fitted().device_profiles["cpu-measured"]["peak_tflop_per_second"]
    assert set(rates) == {item.value for item in Precision}


def test_what_ranks_share_is_in_the_profile() -> None:
    cluster = measured_cluster(
        figures(lone_speed_ratio=2.0, hidden_reduce_ratio=0.25, split_operator_seconds=7e-5)
    )
    profile = profile_of(cluster, cluster.devices[0])
    assert profile.lone_speed_ratio == 2.0
    assert profile.hidden_reduce_ratio == 0.25
    assert profile.split_operator_us == pytest.approx(70.0)


@pytest.mark.parametrize(("cores", "most"), [(4, 1.0), (3, 2.5), (2, 2.5), (1, 5.0)])
def test_a_lone_rank_is_little_faster_than_all_that_share_its_core(cores: int, most: float) -> None:
    fields = device_profile_fields(figures(lone_speed_ratio=5.2, core_count=cores))
    assert fields["lone_speed_ratio"] == most


def test_each_collective_is_fitted_by_itself() -> None:
    slower = [
        {**_collective(kind, 4, size), "seconds": seconds}
        for kind, seconds in (("all_gather", 1e-3), ("reduce_scatter", 4e-3))
        for size in (2**12, 2**13)
    ]
    (level,) = cluster_hardware(measured_cluster(figures(collectives=slower))).kinds[0].levels
    found = {
        kind: float(seconds(2**12, rank_count=4.0, stride=1.0, levels=(level,)))
        for kind, seconds in (("gather", all_gather_seconds), ("scatter", reduce_scatter_seconds))
    }
    assert found == {
        "gather": pytest.approx(1e-3, rel=0.2),
        "scatter": pytest.approx(4e-3, rel=0.2),
    }
