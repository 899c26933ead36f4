"""Measured part: what a traced module asks per token, as torch's own counters gave it.

A block of any kind can be described by what it does instead of by its shape. Nothing of it is
known to be divisible, so that neither tensor nor context parallelism divides it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from planner.schema.document import Count, Part, PositiveCount

PerToken = Annotated[float, Field(ge=0, le=1e15)]
Rows = Annotated[float, Field(gt=0, le=1e12)]
PRODUCT_LIMIT = 4096


class MeasuredProduct(Part):
    """A matrix product or convolution: so many rows of `inner_size` become rows of `outer_size`.

    It takes 2 x rows x inner x outer FLOPs forward.
    """

    rows_per_token: Rows
    inner_size: PositiveCount
    outer_size: PositiveCount


class MeasuredAttention(Part):
    """Fused attention of a sequence to itself; `causal` work is counted as the half it is."""

    head_count: PositiveCount
    key_head_size: PositiveCount
    value_head_size: PositiveCount
    key_value_width: PositiveCount
    causal: bool = True


class SavedForBackward(Part):
    """What forward keeps per token: elements in the number format of compute, and other bytes."""

    elements_per_token: PerToken = 0.0
    bytes_per_token: PerToken = 0.0


_NOTHING_SAVED = SavedForBackward.model_construct()  # the defaults, without a validator at import


class MeasuredPart(Part):
    """A block, or what stands before or after the blocks.

    `elementwise_elements_per_token` are read or written by all but products and attention.
    `saved` is what autograd keeps; `saved_selective` what the executor's selective checkpointing
    keeps of it, which runs `selective_recompute_ratio` of the products' FLOPs again; full
    checkpointing keeps `input_size`. `output_size` is what goes to the next block, per token.
    """

    parameter_count: Count
    products: Annotated[tuple[MeasuredProduct, ...], Field(max_length=PRODUCT_LIMIT)] = ()
    attention: MeasuredAttention | None = None
    elementwise_elements_per_token: PerToken = 0.0
    kernel_count: Count = 0
    saved: SavedForBackward = _NOTHING_SAVED
    saved_selective: SavedForBackward = _NOTHING_SAVED
    selective_recompute_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    input_size: PositiveCount = 1
    output_size: PositiveCount = 1
