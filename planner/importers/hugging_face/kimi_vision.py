"""Kimi-K2.5 of Hugging Face (kimi_k25): a tower before a deepseek_v3.

Defaults are those of `configuration_kimi_k25.py` of transformers 5.23. The tower takes images of
any size; one is assumed.
"""

from __future__ import annotations

from planner.errors import DocumentError
from planner.importers.fields import Fields
from planner.importers.hugging_face.attention import layer_count, multi_head
from planner.importers.hugging_face.mixture import DEEPSEEK_V3_ALIASES, deepseek_v3
from planner.importers.hugging_face.towers import joined
from planner.schema.model import (
    Block,
    BlockRun,
    DenseFeedForward,
    Entry,
    Exit,
    ModelGraph,
    Norm,
    Product,
    RunPart,
)

_IMAGE_PIXELS = 448
_TOWER = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
}


def kimi_k25(fields: Fields, name: str) -> ModelGraph:
    """Return a kimi_k25: rotary and learned positions, squares of patches merged by two products.

    Raises:
        DocumentError: if the projection is not as wide as the tower.
    """
    text = deepseek_v3(fields.section("text_config", aliases=DEEPSEEK_V3_ALIASES), name)
    vision = fields.section("vision_config", defaults=_TOWER)
    width = vision.size("hidden_size")
    projected = fields.size("projection_hidden_size", 1152)
    if projected != width:
        raise DocumentError(
            f"must be the tower's hidden_size {width}",
            field=fields.spelling("projection_hidden_size"),
            value=projected,
            remedy="make both equal",
        )
    sides = vision.counts("merge_kernel_size") or (2, 2)
    merged = max(sides[0] * sides[-1], 1)
    patch = vision.size("patch_size", 14)
    patches = max(_IMAGE_PIXELS // patch, 1) ** 2
    tokens = max(patches // merged, 1)
    places = vision.size("pos_emb_height", 64) * vision.size("pos_emb_width", 64)
    read = merged * width

    def product(inner: int, outer: int, rows: int) -> Product:
        return Product(inner_size=inner, outer_size=outer, bias=True, tokens_per_sequence=rows)

    attention = multi_head(vision).model_copy(
        update={"query_key_value_bias": True, "output_bias": True, "causal": False}
    )
    tower = BlockRun(
        block=Block(
            attention=attention,
            feed_forward=DenseFeedForward(
                ffn_size=vision.size("intermediate_size"), gated=False, bias=True
            ),
            norm=Norm.LAYER,
        ),
        block_count=layer_count(vision),
        part=RunPart.ENCODER,
        hidden_size=width,
        tokens_per_sequence=patches,
        entry=Entry(
            products=(product(3 * patch**2, width, patches),), table_elements=places * width
        ),
        exit=Exit(
            norm_widths=(width, width),
            products=(product(read, read, tokens), product(read, text.hidden_size, tokens)),
            output_size=text.hidden_size,
            output_tokens_per_sequence=tokens,
        ),
    )
    image = f"{_IMAGE_PIXELS} pixels ({patches} patches)"
    return joined(fields, text, tower, image=image, tied=True)
