"""Measured layers: the workload of a part that a trace describes by what it does.

Nothing of such a part is divided by tensor parallelism; legality keeps it from being asked to.
"""

from __future__ import annotations

from dataclasses import replace

from planner.schema.measured import MeasuredAttention, MeasuredPart, SavedForBackward
from planner.workload.layer import (
    ActivationElements,
    AttentionCore,
    ElementwiseTraffic,
    Gemm,
    LayerActivations,
    LayerWorkload,
    ParameterCounts,
)

_FLOAT32_BYTES = 4.0


def measured_end(part: MeasuredPart, *, name: str, hidden_size: int) -> LayerWorkload:
    """Return what stands before or after the blocks asks per token: nobody checkpoints it."""
    layer = measured_layer(part, name=name, hidden_size=hidden_size)
    kept = layer.activations.none
    activations = LayerActivations(none=kept, selective=kept, full=kept)
    return replace(layer, activations=activations)


def measured_layer(part: MeasuredPart, *, name: str, hidden_size: int) -> LayerWorkload:
    """Return what a block described by `part` asks per token."""
    return LayerWorkload(
        name=name,
        hidden_size=hidden_size,
        parameters=ParameterCounts(sharded=0, replicated=part.parameter_count),
        gemms=tuple(
            Gemm(
                name=f"product{index}",
                inner_size=product.inner_size,
                outer_size=product.outer_size,
                split="none",
                tokens_ratio=product.rows_per_token,
            )
            for index, product in enumerate(part.products)
        ),
        attention=None if part.attention is None else _core(part.attention),
        elementwise=ElementwiseTraffic(
            replicated=part.elementwise_elements_per_token,
            sharded=0.0,
            kernel_count=part.kernel_count,
        ),
        activations=LayerActivations(
            none=_elements(part.saved),
            selective=_elements(part.saved_selective),
            full=_elements(SavedForBackward(elements_per_token=part.input_size)),
        ),
        selective_recompute_ratio=part.selective_recompute_ratio,
    )


def _core(attention: MeasuredAttention) -> AttentionCore:
    return AttentionCore(
        head_count=attention.head_count,
        key_head_size=attention.key_head_size,
        value_head_size=attention.value_head_size,
        key_value_width=attention.key_value_width,
        causal=attention.causal,
    )


def _elements(saved: SavedForBackward) -> ActivationElements:
    """Return what is saved; bytes that no number format changes count as words of fp32."""
    return ActivationElements(
        gathered=0.0,
        replicated=saved.elements_per_token,
        sharded=0.0,
        float32=saved.bytes_per_token / _FLOAT32_BYTES,
    )
