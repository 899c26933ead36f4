"""Products: FLOPs over ramps of three sizes, and bytes, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.cost.configuration import Configuration, Configurations
from planner.cost.products import ProductSeconds, product_seconds
from planner.cost.setting import Setting, setting
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.schema.job import Precision, Stack
from planner.workload.layer import Gemm
from tests.builders import a_job

PACE = 3350e9 * 0.86  # an H100's memory
PLATEAU = 989e12 * 0.8 * 0.92  # its 16-bit products, inside a step of Megatron
HALF = 235


def a_setting(*, job: dict[str, Any] | None = None, **degrees: Any) -> Setting:
    """Eight H100 under Megatron in bf16 unless told otherwise."""
    (kind,) = cluster_hardware(cluster_from_short_form("1x8xh100-sxm5-80gb")).kinds
    rows = Configurations.of([Configuration(**degrees)])
    fields = {"sequence_length": 4096, "stack": Stack.MEGATRON, **(job or {})}
    return setting(a_job(**fields), kind, rows)


def seconds(gemm: Gemm, tokens: int, **settings: Any) -> ProductSeconds:
    """Return the product's seconds over `tokens`."""
    return product_seconds(gemm, np.array([[float(tokens)]]), a_setting(**settings))


def values(product: ProductSeconds) -> tuple[float, float, float]:
    """Return forward, inputs' gradient and weights' gradient."""
    parts = (product.forward, product.input_gradient, product.weight_gradient)
    return tuple(part.item() for part in parts)  # type: ignore[return-value]


def few(tiles: int) -> float:
    """Return what a product of so many tiles of 128 by 128 takes longer than one of 2,048."""
    return 25 / tiles - 25 / 2048


def test_each_of_three_products_sums_over_a_size_of_its_own() -> None:
    """K = 1,024 forward, N = 4,096 for inputs, M = 8,192 rows for weights.

    They put out 64 x 32, 64 x 8 and 8 x 32 tiles.
    """
    gemm = Gemm(name="up", inner_size=1024, outer_size=4096, split="outer")
    least = 2 * 8192 * 1024 * 4096 / PLATEAU
    forward, inputs, weights = values(seconds(gemm, 8192))
    assert forward == pytest.approx(least * (1 + HALF / 1024))
    assert inputs == pytest.approx(least * (1 + HALF / 4096 + few(512)))
    assert weights == pytest.approx(least * (1 + HALF / 8192 + few(256)))


def test_tensor_parallel_ranks_sum_inputs_gradients_over_fewer_elements() -> None:
    """Over 4 ranks N is 1,024 of the 4,096 of a column-split product; 64 x 8 and 64 x 16 tiles."""
    gemm = Gemm(name="up", inner_size=2048, outer_size=4096, split="outer")
    forward, inputs, _ = values(seconds(gemm, 8192, tensor_parallel_degree=4))
    least = 2 * 8192 * 2048 * 1024 / PLATEAU
    assert forward == pytest.approx(least * (1 + HALF / 2048 + few(512)))
    assert inputs == pytest.approx(least * (1 + HALF / 1024 + few(1024)))


def test_fused_products_fill_a_device_together() -> None:
    """256 columns of 1,536: of 16 x 2 tiles apart, 16 x 12 in Megatron; torch has 3 products."""
    gemm = Gemm(name="key", inner_size=4096, outer_size=256, split="outer", fused_outer_size=1536)
    together = values(seconds(gemm, 2048))[0]
    least = 2 * 2048 * 4096 * 256 / PLATEAU
    assert together == pytest.approx(least * (1 + HALF / 4096 + few(16 * 12)))
    apart = values(seconds(gemm, 2048, job={"stack": Stack.TORCH}))[0]
    assert apart == pytest.approx(least * 0.92 / 0.71 * (1 + HALF / 4096 + few(16 * 2)))


def test_tiles_count_for_dense_products_in_16_bits_alone() -> None:
    """Routers stay in 16 bits under fp8."""
    up = Gemm(name="up", inner_size=8192, outer_size=256, split="outer")
    router = Gemm(name="router", inner_size=8192, outer_size=256, split="none", in_16_bits=True)
    least = 2 * 8192 * 8192 * 256
    job = {"precision": Precision.FP8}
    eight = values(seconds(up, 8192, job=job))[0]
    assert eight == pytest.approx(least / (1979e12 * 0.706 * 0.92) * (1 + 320 / 8192))
    sixteen = values(seconds(router, 8192, job=job))[0]
    assert sixteen == pytest.approx(least / PLATEAU * (1 + HALF / 8192 + few(64 * 2)))


def test_weights_gradients_of_experts_sum_over_the_rows_of_one() -> None:
    """2 of 16 experts a token on 8 ranks: each of 2 local experts has 4,096 of 8,192 rows."""
    gemm = an_expert()
    _, _, weights = values(seconds(gemm, 4096, expert_parallel_degree=8))
    least = 2 * 8192 * 2048 * 4096 / PLATEAU
    assert weights == pytest.approx(least * (4096 + HALF) / 4096)


def test_an_expert_s_products_are_slower_the_fewer_rows_it_has() -> None:
    """Twice 1,024 rows for 2 local experts: each has 1,024, and the ramp 100 over that more."""
    gemm = an_expert()
    forward, inputs, _ = values(seconds(gemm, 1024, expert_parallel_degree=8))
    least = 2 * 2048 * 2048 * 4096 / PLATEAU
    assert forward == pytest.approx(least * (1 + HALF / 2048 + 100 / 1024))
    assert inputs == pytest.approx(least * (1 + HALF / 4096 + 100 / 1024))


def an_expert() -> Gemm:
    """One product of 16 experts, of which a token goes to 2."""
    return Gemm(
        name="expert_up",
        inner_size=2048,
        outer_size=4096,
        split="outer",
        tokens_ratio=2.0,
        expert_count=16,
    )


def test_adding_to_gradients_of_many_experts_takes_longer_than_their_products() -> None:
    """With 16 rows for each of 16 experts, 8 bytes a weight are read and written, 4 in 16 bits."""
    rows, weights = 16 * 16, 16 * 2048 * 4096
    moved_rows = 2 * rows * (2048 + 4096)
    _, _, wide = values(seconds(an_expert(), rows // 2))
    assert wide == pytest.approx((moved_rows + 8 * weights) / PACE)
    _, _, narrow = values(seconds(an_expert(), rows // 2, job={"gradients_in_16_bits": True}))
    assert narrow == pytest.approx((moved_rows + 4 * weights) / PACE)


def test_few_rows_wait_for_the_weights() -> None:
    """16 rows of a 1,024 x 4,096 product read 8 MiB of weights."""
    gemm = Gemm(name="up", inner_size=1024, outer_size=4096, split="outer")
    forward, inputs, _ = values(seconds(gemm, 16))
    moved = 2 * (1024 * 4096 + 16 * (1024 + 4096)) / PACE
    assert (forward, inputs) == pytest.approx((moved, moved))


def test_scales_of_rows_slow_products_in_8_bits_alone() -> None:
    """0.65 of the rate of 0.706 of 1,979 TFLOP/s, on a ramp of 320."""
    gemm = Gemm(name="up", inner_size=8192, outer_size=8192, split="outer")
    job = {"precision": Precision.FP8, "row_scaled_fp8": True}
    forward, _, _ = values(seconds(gemm, 8192, job=job))
    least = 2 * 8192**3 / (1979e12 * 0.706 * 0.92)
    assert forward == pytest.approx(least / 0.65 * (1 + 320 / 8192))
    sixteen, _, _ = values(seconds(gemm, 8192, job={"row_scaled_fp8": True}))
    assert sixteen == pytest.approx(2 * 8192**3 / PLATEAU * (1 + HALF / 8192 + few(4096)))


def test_products_in_8_bits_read_one_byte_an_element_and_write_two() -> None:
    """16 rows: the weights and the rows in 8 bits, what comes out in 16."""
    gemm = Gemm(name="up", inner_size=1024, outer_size=4096, split="outer")
    forward, inputs, _ = values(seconds(gemm, 16, job={"precision": Precision.FP8}))
    assert forward == pytest.approx((1024 * 4096 + 16 * (1024 + 2 * 4096)) / PACE)
    assert inputs == pytest.approx((1024 * 4096 + 16 * (2 * 1024 + 4096)) / PACE)


def test_products_of_fp32_in_tf32_have_half_of_the_rate_of_bf16() -> None:
    """Without, they have 67 TFLOP/s x 0.757 inside steps too, half of it at K = 24 (an H100's)."""
    gemm = Gemm(name="up", inner_size=1024, outer_size=4096, split="outer")
    flop = 2 * 8192 * 1024 * 4096
    plain, *_ = values(seconds(gemm, 8192, job={"precision": "fp32"}))
    assert plain == pytest.approx(flop / (67e12 * 0.757) * (1 + 24 / 1024))
    job = {"precision": "fp32", "tensor_float_32": True}
    narrow, *_ = values(seconds(gemm, 8192, job=job))
    assert narrow == pytest.approx(flop / (PLATEAU / 2) * (1 + HALF / 1024))
