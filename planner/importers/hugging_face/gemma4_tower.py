"""The vision tower of Gemma-4: rotary positions, norms before and after each part, pooled patches.

Defaults are those of `configuration_gemma4.py` of transformers 5.23. Its images are of any shape
and come to `vision_soft_tokens_per_image` tokens at most, which are assumed.
"""

from __future__ import annotations

from planner.importers.fields import LAYER_LIMIT, Fields, require_divides
from planner.schema.model import (
    Block,
    BlockRun,
    DenseFeedForward,
    Entry,
    Exit,
    GroupedQueryAttention,
    ModelGraph,
    Norm,
    NormPlacement,
    Product,
    RunPart,
)

_COLOURS = 3
_AXES = 2  # a table of positions for each
_DEFAULTS = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}


def gemma4_tower(fields: Fields, text: ModelGraph) -> tuple[BlockRun, str]:
    """Return the tower before `text`, and the image that is assumed, in words."""
    vision = fields.section("vision_config", defaults=_DEFAULTS)
    width, patch = vision.size("hidden_size"), vision.size("patch_size", 16)
    tokens = fields.size("vision_soft_tokens_per_image", 280)
    patches = tokens * vision.size("pooling_kernel_size", 3) ** 2
    tower = BlockRun(
        block=_block(vision),
        block_count=vision.size("num_hidden_layers", 16, limit=LAYER_LIMIT),
        part=RunPart.ENCODER,
        hidden_size=width,
        tokens_per_sequence=patches,
        entry=Entry(
            products=(Product(inner_size=_COLOURS * patch**2, outer_size=width),),
            table_elements=_AXES * vision.size("position_embedding_size", 10_240) * width,
        ),
        exit=Exit(
            products=(
                Product(inner_size=width, outer_size=text.hidden_size, tokens_per_sequence=tokens),
            ),
            output_size=text.hidden_size,
            output_tokens_per_sequence=tokens,
        ),
    )
    return tower, f"{patches} patches of {patch} pixels"


def _block(vision: Fields) -> Block:
    heads = vision.size("num_attention_heads")
    key_value_heads = vision.size("num_key_value_heads", 12)
    require_divides(
        vision.spelling("num_key_value_heads"),
        key_value_heads,
        vision.spelling("num_attention_heads"),
        heads,
    )
    return Block(
        attention=GroupedQueryAttention(
            head_count=heads,
            key_value_head_count=key_value_heads,
            head_size=vision.size("head_dim", 64),
            query_key_norm=True,
            causal=False,
        ),
        feed_forward=DenseFeedForward(ffn_size=vision.size("intermediate_size")),
        norm=Norm.RMS_FLOAT32,
        norm_placement=NormPlacement.BOTH,
    )
