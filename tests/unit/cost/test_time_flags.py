"""What the job's flags on time do: graphs, experts beside compute, uneven routing; by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.cost.compute import compute_seconds
from planner.cost.configuration import Configuration, Configurations, Floats
from planner.cost.model_parallel import (
    ModelParallelSeconds,
    model_parallel_seconds,
    with_experts_hidden,
)
from planner.cost.products import cast_seconds, product_seconds
from planner.cost.setting import Setting, setting
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import read_model
from planner.schema.job import Precision, Stack
from planner.workload.layer import LayerWorkload
from planner.workload.model import model_workload
from tests.builders import a_job

LAYER: LayerWorkload = model_workload(read_model("qwen3-30b-a3b")[1]).runs[0][0]
DENSE_LAYER: LayerWorkload = model_workload(read_model("llama-3-8b")[1]).runs[0][0]
NAMES = {"h100": "1x8xh100-sxm5-80gb", "cpu": "1x8xcpu-gloo"}


def a_setting(
    cluster: str = "h100", length: int = 4096, expert_parallel_degree: int = 8, **job: Any
) -> Setting:
    """One sequence on each of eight devices, which share 128 experts; Megatron."""
    (kind,) = cluster_hardware(cluster_from_short_form(NAMES[cluster])).kinds
    rows = Configurations.of(
        [Configuration(expert_parallel_degree=expert_parallel_degree, data_parallel_shard_degree=8)]
    )
    fields = {"sequence_length": length, "stack": Stack.MEGATRON, **job}
    return setting(a_job(**fields), kind, rows)


def test_graphs_spare_the_host_its_launches() -> None:
    """Of 16 tokens the kernels are done long before the host has launched them."""
    waits, graphs = (
        compute_seconds(LAYER, a_setting(length=16, cuda_graphs=flag)) for flag in (False, True)
    )
    assert waits.forward_host.item() > 10 * waits.forward.item()
    assert graphs.forward_host.item() == 0.0
    assert graphs.backward_host.item() == 0.0
    assert graphs.forward.item() == waits.forward.item()


def test_graphs_of_attention_and_routing_leave_the_experts_launches() -> None:
    """Three products of experts, 15 that move rows, two of the gate and a residual: 21 of 62."""
    waits = compute_seconds(LAYER, a_setting(length=16, attention_graphs=True))
    forward = waits.forward_host.item() + waits.forward.item()
    assert forward == pytest.approx(21 * 55e-6)


def test_a_host_that_waits_for_no_counts_launches_a_mixture_in_half_the_time() -> None:
    """62 launches of 27.5 microseconds; a dense layer's launches take what they took."""
    seconds = compute_seconds(LAYER, a_setting(length=16, fixed_expert_tokens=True))
    assert seconds.forward_host.item() + seconds.forward.item() == pytest.approx(62 * 27.5e-6)
    counted, fixed = (
        compute_seconds(DENSE_LAYER, a_setting(length=16, fixed_expert_tokens=flag))
        for flag in (False, True)
    )
    assert counted.forward_host.item() == fixed.forward_host.item() > 0.0


def test_a_processor_without_kernels_has_no_graphs() -> None:
    """Where the host is the device, what it launches takes its own time."""
    plain, graphs = (
        compute_seconds(LAYER, a_setting("cpu", precision=Precision.FP32, cuda_graphs=flag))
        for flag in (False, True)
    )
    assert graphs.forward_host.item() == plain.forward_host.item() > 0.0


def test_a_layer_of_a_mixture_waits_for_its_62_launches() -> None:
    """55 microseconds each, 1.6 times as many backward: 3.41 and 5.46 ms."""
    seconds = compute_seconds(LAYER, a_setting(length=16))
    forward = seconds.forward_host.item() + seconds.forward.item()
    backward = seconds.backward_host.item() + seconds.backward.item()
    assert (forward, backward) == pytest.approx((62 * 55e-6, 1.6 * 62 * 55e-6))


def exchanged(here: Setting, window: float) -> ModelParallelSeconds:
    """Return the layer's exchanges beside compute of `window` seconds, either way."""
    none: Floats = np.zeros((1, 1))
    parallel = model_parallel_seconds(LAYER, "block", here, none)
    around = np.array([[window]])
    return with_experts_hidden(parallel, forward=around, backward=2 * around, setting=here)


def test_experts_exchange_beside_compute_where_the_job_says_so() -> None:
    """A tenth of what hides slows compute by 8 %: 0.08 of it stays; of a window 0.92 can hide."""
    whole = exchanged(a_setting(), 1.0).expert_forward.item()
    hidden = exchanged(a_setting(overlapped_experts=True), 1.0)
    assert hidden.expert_forward.item() == pytest.approx(0.08 * whole)
    window = whole / 4
    partly = exchanged(a_setting(overlapped_experts=True), window)
    assert partly.expert_forward.item() == pytest.approx(whole - 0.92 * 0.92 * window)
    assert partly.expert_backward.item() == pytest.approx(whole - 2 * 0.92 * 0.92 * window)


def test_all_wait_for_the_rank_that_has_twice_its_share_of_tokens() -> None:
    """Its products and casts take as long as for twice the tokens; dense ones as before."""
    even, uneven = (
        a_setting(expert_load_ratio=ratio, precision=Precision.FP8) for ratio in (1.0, 2.0)
    )
    tokens = np.array([[4096.0]])
    expert = next(gemm for gemm in LAYER.gemms if gemm.name == "expert_down")
    dense = next(gemm for gemm in LAYER.gemms if gemm.name == "output")
    double = product_seconds(expert, 2 * tokens, even)
    assert product_seconds(expert, tokens, uneven).forward.item() == double.forward.item()
    same, plain = (product_seconds(dense, tokens, here) for here in (even, uneven))
    assert plain.forward.item() == same.forward.item()
    more, fewer = (cast_seconds(LAYER, here)[0].item() for here in (uneven, even))
    experts_cast = 2 * 4096 * 8 * (2048 + 768) / (3350e9 * 0.86)
    assert more - fewer == pytest.approx(experts_cast)


def test_a_rank_that_has_all_experts_has_its_own_tokens_rows_however_uneven_they_are() -> None:
    """Only a fixed number of rows, which each expert is filled up to, is more on any rank."""
    expert = next(gemm for gemm in LAYER.gemms if gemm.name == "expert_down")

    def forward(expert_parallel_degree: int, **job: Any) -> float:
        here = a_setting(expert_parallel_degree=expert_parallel_degree, **job)
        return product_seconds(expert, np.array([[4096.0]]), here).forward.item()

    assert forward(1, expert_load_ratio=2.0) == forward(1)
    assert forward(8, expert_load_ratio=2.0) > 1.5 * forward(8)
    assert forward(1, expert_load_ratio=2.0, fixed_expert_tokens=True) > 1.5 * forward(1)


def test_a_cpu_that_exchanges_rows_runs_22_operators_more_forward_and_10_backward() -> None:
    """3.7 us each, as its profile has it; forward exchanges counts too: 4 ms of 8 ranks."""
    alone, apart = (
        model_parallel_seconds(
            LAYER,
            "block",
            a_setting("cpu", stack=Stack.TORCH, expert_parallel_degree=degree),
            np.zeros((1, 1)),
        )
        for degree in (1, 8)
    )
    assert alone.expert_forward.item() == alone.expert_backward.item() == 0.0
    counts, operators = 4000e-6, (22 - 10) * 3.7e-6
    more = apart.expert_forward.item() - apart.expert_backward.item()
    assert more == pytest.approx(counts + operators, rel=1e-3)


def test_twice_as_much_reaches_the_rank_that_has_twice_its_share() -> None:
    """A million tokens, so that latency is nothing beside them."""
    even, uneven = (
        exchanged(a_setting(length=2**20, expert_load_ratio=ratio), 1.0).expert_forward.item()
        for ratio in (1.0, 2.0)
    )
    assert uneven == pytest.approx(2 * even, rel=0.01)
