"""Casts to 8 bits: bytes over the memory's pace, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.cost.compute import compute_seconds
from planner.cost.configuration import Configuration, Configurations
from planner.cost.products import cast_seconds
from planner.cost.setting import Setting, setting
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import read_model
from planner.schema.job import Precision, Stack
from planner.workload.layer import (
    ActivationElements,
    ElementwiseTraffic,
    Gemm,
    LayerActivations,
    LayerWorkload,
    ParameterCounts,
)
from planner.workload.model import model_workload
from tests.builders import a_job

TOKENS = 2048
PACE = 3350e9 * 0.86  # an H100's memory
UP = Gemm(name="up", inner_size=1024, outer_size=4096, split="outer")
DOWN = Gemm(name="down", inner_size=4096, outer_size=1024, split="inner")


def a_setting(tensor: int = 1, **job: Any) -> Setting:
    """One sequence of 2,048 tokens on eight H100, under Megatron in fp8 unless told otherwise."""
    fields = {"precision": Precision.FP8, "stack": Stack.MEGATRON}
    (kind,) = cluster_hardware(cluster_from_short_form("1x8xh100-sxm5-80gb")).kinds
    rows = Configurations.of(
        [Configuration(tensor_parallel_degree=tensor, sequence_parallel=tensor > 1)]
    )
    return setting(a_job(sequence_length=TOKENS, **{**fields, **job}), kind, rows)


def a_layer(*gemms: Gemm) -> LayerWorkload:
    """A block of nothing but these products."""
    nothing = ActivationElements(gathered=0.0, replicated=0.0, sharded=0.0)
    return LayerWorkload(
        name="block",
        hidden_size=1024,
        parameters=ParameterCounts(sharded=0, replicated=0),
        gemms=gemms,
        attention=None,
        elementwise=ElementwiseTraffic(replicated=0.0, sharded=0.0, kernel_count=0),
        activations=LayerActivations(none=nothing, selective=nothing, full=nothing),
        selective_recompute_ratio=0.5,
    )


def moved(setting: Setting, *gemms: Gemm) -> tuple[float, float]:
    """Return the bytes that casts move forward and backward."""
    forward, backward = cast_seconds(a_layer(*gemms), setting)
    return float(forward[0, 0]) * PACE, float(backward[0, 0]) * PACE


def test_megatron_moves_2_bytes_an_input_and_4_a_gradient() -> None:
    """Inputs are 2,048 x 1,024, gradients of the output 2,048 x 4,096."""
    forward, backward = moved(a_setting(), UP)
    assert forward == pytest.approx(2 * 2048 * 1024)
    assert backward == pytest.approx(4 * 2048 * 4096)


def test_torch_casts_its_weights_in_each_micro_batch() -> None:
    """6 bytes an element of rows, gradients and the 1,024 x 4,096 weight, which is cast twice."""
    forward, backward = moved(a_setting(stack=Stack.TORCH), UP)
    assert forward == pytest.approx(6 * (2048 * 1024 + 1024 * 4096))
    assert backward == pytest.approx(6 * (2048 * 4096 + 1024 * 4096))


def test_rows_that_two_products_read_are_cast_once() -> None:
    """The second product adds its gradient's cast, and none forward."""
    forward, backward = moved(a_setting(), UP, replace(UP, shares_input=True))
    assert forward == pytest.approx(2 * 2048 * 1024)
    assert backward == pytest.approx(2 * 4 * 2048 * 4096)


def test_rows_are_cast_before_tensor_parallel_ranks_gather_them() -> None:
    """Of 4 ranks each casts 512 rows of the column-split input and of the row-split gradient."""
    forward, backward = moved(a_setting(tensor=4), UP, DOWN)
    assert forward == pytest.approx(2 * (512 * 1024 + 2048 * 1024))
    assert backward == pytest.approx(4 * (2048 * 1024 + 512 * 1024))


def test_what_stays_in_16_bits_is_not_cast() -> None:
    """Neither under bf16, nor for a router under fp8."""
    assert moved(a_setting(precision=Precision.BF16), UP) == (0.0, 0.0)
    assert moved(a_setting(), replace(UP, in_16_bits=True)) == (0.0, 0.0)


def test_scales_of_rows_are_made_for_each_order() -> None:
    """10 bytes in place of 6: two passes for scales, two reads and two writes."""
    forward, _ = moved(a_setting(stack=Stack.TORCH, row_scaled_fp8=True), UP)
    assert forward == pytest.approx(10 * (2048 * 1024 + 1024 * 4096))


@pytest.mark.parametrize(
    ("flags", "an_input", "a_gradient", "a_weight"),
    [
        ({}, 1.5, 3, 0),
        ({"stack": Stack.TORCH}, 5, 5, 6),
        ({"stack": Stack.TORCH, "row_scaled_fp8": True}, 5, 5, 10),
    ],
)
def test_what_is_frozen_is_cast_in_the_order_of_one_product_alone(
    flags: dict[str, Any], an_input: float, a_gradient: float, a_weight: float
) -> None:
    """No product for its weight's gradient reads the other."""
    forward, backward = moved(a_setting(adapters={"rank": 8}, **flags), UP)
    assert forward == pytest.approx(an_input * 2048 * 1024 + a_weight * 1024 * 4096)
    assert backward == pytest.approx(a_gradient * 2048 * 4096 + a_weight * 1024 * 4096)


def test_casts_are_part_of_compute() -> None:
    """A product of nothing but casts and itself takes the sum of both."""
    here = a_setting()
    layer = a_layer(UP)
    forward, backward = cast_seconds(layer, here)
    seconds = compute_seconds(layer, here)
    # 0.706 of 1979 TFLOP/s, 0.92 of it inside a step; K = 1024, N = 4096, M = 2048 on a ramp of 320
    least = 2 * 2048 * 1024 * 4096 / (1979e12 * 0.706 * 0.92)
    back = least * (4416 / 4096 + 2368 / 2048)
    assert float(seconds.forward[0, 0]) == pytest.approx(least * 1344 / 1024 + forward[0, 0])
    assert float(seconds.backward[0, 0]) == pytest.approx(back + backward[0, 0])


def test_a_head_is_as_fast_under_fp8_as_under_bf16() -> None:
    """The vocabulary's product stays in 16 bits."""
    head = model_workload(read_model("llama-3-8b")[1]).head.layer
    eight, sixteen = (
        compute_seconds(head, a_setting(precision=precision)).forward[0, 0]
        for precision in (Precision.FP8, Precision.BF16)
    )
    assert eight == pytest.approx(sixteen)
