"""Attention that is not fused: products over all pairs, and passes over the scores, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.cost.attention import attention_seconds
from planner.cost.compute import compute_seconds
from planner.cost.configuration import Configuration, Configurations
from planner.cost.setting import Setting, setting
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.schema.job import Precision, Softmax, Stack
from planner.workload.layer import (
    ActivationElements,
    AttentionCore,
    ElementwiseTraffic,
    LayerActivations,
    LayerWorkload,
    ParameterCounts,
)
from tests.builders import a_job

LENGTH, HEADS, SIZE = 2048, 16, 64
SCORES = LENGTH * LENGTH * HEADS


def a_setting(tensor: int = 1, device: str = "a100-sxm4-80gb", **job: Any) -> Setting:
    """One sequence of 2,048 tokens on eight A100, Megatron unless told otherwise."""
    fields = {"precision": Precision.FP16, "stack": Stack.MEGATRON, "fused_attention": False}
    (kind,) = cluster_hardware(cluster_from_short_form(f"1x8x{device}")).kinds
    rows = Configurations.of([Configuration(tensor_parallel_degree=tensor)])
    return setting(a_job(sequence_length=LENGTH, **{**fields, **job}), kind, rows)


def a_core(**changes: Any) -> AttentionCore:
    """16 causal heads of 64."""
    width = 2 * HEADS * SIZE
    core = AttentionCore(
        head_count=HEADS, key_head_size=SIZE, value_head_size=SIZE, key_value_width=width
    )
    return replace(core, **changes)


def a_layer(core: AttentionCore) -> LayerWorkload:
    """A block of nothing but attention."""
    nothing = ActivationElements(gathered=0.0, replicated=0.0, sharded=0.0)
    return LayerWorkload(
        name="block",
        hidden_size=HEADS * SIZE,
        parameters=ParameterCounts(sharded=0, replicated=0),
        gemms=(),
        attention=core,
        elementwise=ElementwiseTraffic(replicated=0.0, sharded=0.0, kernel_count=0),
        activations=LayerActivations(none=nothing, selective=nothing, full=nothing),
        selective_recompute_ratio=0.5,
    )


def seconds(core: AttentionCore, **job: Any) -> tuple[float, float]:
    """Forward and backward seconds."""
    forward, backward = attention_seconds(a_layer(core), a_setting(**job))
    return float(forward[0, 0]), float(backward[0, 0])


def test_dropout_adds_two_passes_and_a_mask_over_the_scores_each_way() -> None:
    """5 bytes a score at 2,039 GB/s, of which copies achieve 86 %."""
    plain, dropped = seconds(a_core()), seconds(a_core(), dropout=True)
    hardware = a_setting().hardware
    added = 5.0 * SCORES / hardware.memory_bytes_per_second
    assert dropped[0] - plain[0] == pytest.approx(added)
    assert dropped[1] - plain[1] == pytest.approx(added)


def products(
    inner: int, head: int = SIZE, *, peak: float = 312e12 * 0.82, ramp: int = 160
) -> float:
    """Seconds of one product over an inner size, of the cores' heads and pairs, inside a step.

    An A100's, of 312 TFLOP/s: peak x 0.82 x K / (K + 160).
    """
    rate = peak * inner / (inner + ramp) * a_setting().in_situ_efficiency
    return 2.0 * SCORES * head / rate


def test_scores_pass_through_memory_four_times_forward_and_seven_times_backward() -> None:
    """Forward one product has the heads' size inside and one the keys, backward one and three."""
    forward, backward = seconds(a_core(causal=False))
    a_byte = SCORES / a_setting().hardware.memory_bytes_per_second
    assert forward - 8.0 * a_byte == pytest.approx(products(SIZE) + products(LENGTH))
    assert backward - 14.0 * a_byte == pytest.approx(products(SIZE) + 3.0 * products(LENGTH))


def test_megatrons_causal_softmax_reads_half_of_the_scores() -> None:
    """2 bytes of half of them forward; backward of half of its output and of half the gradient."""
    whole, half = seconds(a_core(causal=False)), seconds(a_core())
    a_byte = SCORES / a_setting().hardware.memory_bytes_per_second
    assert whole[0] - half[0] == pytest.approx(1.0 * a_byte)
    assert whole[1] - half[1] == pytest.approx(2.0 * a_byte)


@pytest.mark.parametrize(
    "job",
    [
        {"stack": Stack.TORCH},
        {"stack": Stack.TORCH, "fused_elementwise": True},
        {"fused_elementwise": False},
        {"precision": Precision.FP32},
    ],
)
def test_other_softmaxes_read_what_the_mask_hides(job: dict[str, Any]) -> None:
    assert seconds(a_core(), **job) == seconds(a_core(causal=False), **job)


def test_products_work_out_what_the_mask_hides() -> None:
    assert seconds(a_core(window_tokens=128)) == seconds(a_core())


def test_tensor_parallel_ranks_share_the_heads() -> None:
    whole = seconds(a_core())
    assert seconds(a_core(), tensor=4) == pytest.approx([second / 4.0 for second in whole])


def test_fused_attention_is_faster_than_unfused() -> None:
    fused = seconds(a_core(), fused_attention=True)
    assert sum(fused) < 0.5 * sum(seconds(a_core(), dropout=True))


def test_selective_checkpointing_of_megatron_runs_the_unfused_core_alone_again() -> None:
    compute = compute_seconds(a_layer(a_core()), a_setting())
    assert compute.recompute_selective == pytest.approx(compute.attention_forward)


def test_fused_attention_is_not_run_again_by_selective_checkpointing() -> None:
    compute = compute_seconds(a_layer(a_core()), a_setting(fused_attention=True))
    assert compute.recompute_selective[0, 0] < compute.attention_forward[0, 0]


def test_heads_of_64_run_at_the_profiles_ratio_and_heads_of_32_at_its_square() -> None:
    """The same FLOPs on 8 heads of 128, 16 of 64 and 32 of 32."""
    ratio = a_setting().hardware.profile.attention.half_head_ratio
    whole, half, quarter = (
        seconds(
            a_core(head_count=1024 // size, key_head_size=size, value_head_size=size),
            fused_attention=True,
        )
        for size in (128, 64, 32)
    )
    assert half == pytest.approx([second / ratio for second in whole])
    assert quarter == pytest.approx([second / ratio**2 for second in whole])


def test_heads_above_128_are_no_faster() -> None:
    large, usual = (
        seconds(
            a_core(head_count=2048 // size, key_head_size=size, value_head_size=size),
            fused_attention=True,
        )
        for size in (256, 128)
    )
    assert large == pytest.approx(usual)


def test_the_first_flash_attention_runs_at_72_percent_of_the_second() -> None:
    second = seconds(a_core(), fused_attention=True)
    first = seconds(a_core(), fused_attention=True, flash_attention_generation=1)
    assert first == pytest.approx([one / 0.72 for one in second])


def test_a_generation_that_a_job_names_runs_at_its_own_rates() -> None:
    """The third's backward comes to 585 TFLOP/s where the second's comes to 330."""
    second, third = (
        attention_seconds(
            a_layer(a_core()),
            a_setting(
                device="h100-sxm5-80gb", fused_attention=True, flash_attention_generation=generation
            ),
        )
        for generation in (2, 3)
    )
    expected = (330 * LENGTH / (LENGTH + 270)) / (585 * LENGTH / (LENGTH + 420))
    assert third[1] / second[1] == pytest.approx(expected)


@pytest.mark.parametrize(("size", "times"), [(148, 13.0), (150, 18.0), (149, 18.0)])
def test_heads_off_the_grid_of_8_run_their_products_far_slower(size: int, times: float) -> None:
    """Multiples of 4 at a 13th, others at an 18th, whatever a product's inner size."""
    a_byte = SCORES / a_setting().hardware.memory_bytes_per_second
    off = seconds(a_core(key_head_size=size, value_head_size=size))[0] - 7.0 * a_byte
    assert off == pytest.approx(times * (products(size, size) + products(LENGTH, size)))


def test_single_operations_scale_mask_and_widen_what_a_compiled_softmax_reads_once() -> None:
    """Scale and mask read and write 2 bytes; 2 more are written, then 4 are read for 2: 16 bytes.

    Backward the scale reads and writes 2, 2 are read for 4, and twice 4 in place of 2: 14 bytes.
    """
    apart = seconds(a_core(), stack=Stack.TORCH)
    together = seconds(a_core(), stack=Stack.TORCH, fused_elementwise=True)
    a_byte = SCORES / a_setting().hardware.memory_bytes_per_second
    assert apart[0] - together[0] == pytest.approx(16.0 * a_byte)
    assert apart[1] - together[1] == pytest.approx(14.0 * a_byte)


@pytest.mark.parametrize(
    ("kind", "forward_bytes", "backward_bytes"),
    [
        (Softmax.KERNEL, 0.0, 0.0),
        (Softmax.MASKED, 4.0, 4.0),
        (Softmax.STEPS, 8.0, 8.0),
        (Softmax.WIDE_STEPS, 16.0, 14.0),
        (Softmax.REDUCTIONS, 4.0, 4.0),
    ],
)
@pytest.mark.parametrize("stack", Stack)
def test_a_job_says_how_its_softmax_is_made(
    kind: Softmax, forward_bytes: float, backward_bytes: float, stack: Stack
) -> None:
    """Beyond a kernel: a mask, or one read more of scores and of gradients twice, 2 bytes each."""
    whole = a_core(causal=False)
    usual = seconds(whole, stack=stack, softmax=Softmax.KERNEL)
    found = seconds(whole, stack=stack, softmax=kind)
    a_byte = SCORES / a_setting().hardware.memory_bytes_per_second
    assert found[0] - usual[0] == pytest.approx(forward_bytes * a_byte)
    assert found[1] - usual[1] == pytest.approx(backward_bytes * a_byte)


def test_what_reads_the_scores_once_more_reads_what_the_mask_hides() -> None:
    for kind in (Softmax.MASKED, Softmax.REDUCTIONS):
        assert seconds(a_core(), softmax=kind) == seconds(a_core(causal=False), softmax=kind)


def test_megatrons_fused_softmax_takes_16_bits_alone() -> None:
    """At fp32 4 + 4 passes of 4 bytes forward and 7 + 4 backward, without tensor cores."""
    forward, backward = seconds(a_core(), precision=Precision.FP32)
    a_byte = SCORES / a_setting().hardware.memory_bytes_per_second
    plain = {"peak": 19.5e12 * 0.757, "ramp": 24}
    one, whole = products(SIZE, **plain), products(LENGTH, **plain)
    assert forward - 32.0 * a_byte == pytest.approx(one + whole)
    assert backward - 44.0 * a_byte == pytest.approx(one + 3.0 * whole)
