"""GLM-4.1V and GLM-4.5V of Hugging Face (glm4v, glm4v_moe): a tower before a glm4 or glm4_moe.

Defaults are those of `configuration_<type>.py` of transformers 5.23. The tower takes images of any
size; one is assumed.
"""

from __future__ import annotations

from planner.errors import DocumentError
from planner.importers import hf_glm
from planner.importers.fields import Fields
from planner.importers.hf_attention import layer_count, multi_head
from planner.importers.hf_towers import joined
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
_SIDE_LIMIT = 2**14
_TEXT = {"model_type": "glm4v_text", "head_dim": None, "max_position_embeddings": 32768}
_MOE_TEXT = {
    "model_type": "glm4v_moe_text",
    "attention_bias": True,
    "max_position_embeddings": 65536,
    "num_nextn_predict_layers": 0,
}


def glm4v(fields: Fields, name: str) -> ModelGraph:
    """Return a glm4v: its tower before a glm4."""
    return _model(fields, hf_glm.glm4(fields.section("text_config", defaults=_TEXT), name))


def glm4v_moe(fields: Fields, name: str) -> ModelGraph:
    """Return a glm4v_moe: the same tower before a glm4_moe."""
    section = fields.section("text_config", aliases=hf_glm.GLM4_MOE_ALIASES, defaults=_MOE_TEXT)
    return _model(fields, hf_glm.glm4_moe(section, name))


def glm46v(fields: Fields, name: str) -> ModelGraph:
    """Return a glm46v: the same tower before either, as `text_config` says."""
    routed = fields.section("text_config").text("model_type") == "glm4v_moe_text"
    return glm4v_moe(fields, name) if routed else glm4v(fields, name)


def _model(fields: Fields, text: ModelGraph) -> ModelGraph:
    """Return the tower, squares of whose patches one convolution merges, before its decoder.

    Raises:
        DocumentError: if the tower does not put out what the decoder takes.
    """
    vision = fields.section(
        "vision_config",
        aliases={"num_attention_heads": "num_heads", "num_hidden_layers": "depth"},
        defaults={"hidden_size": 1536},
    ).filled({"num_heads": 12, "depth": 24})
    output = vision.size("out_hidden_size", 4096)
    if output != text.hidden_size:
        raise DocumentError(
            f"must be the decoder's hidden_size {text.hidden_size}",
            field=vision.spelling("out_hidden_size"),
            value=output,
            remedy="make both equal",
        )
    patch = vision.size("patch_size", 14, limit=_SIDE_LIMIT)
    merge = vision.size("spatial_merge_size", 2, limit=_SIDE_LIMIT)
    side = max(_IMAGE_PIXELS // (patch * merge), 1)
    attention = multi_head(vision, "num_heads").model_copy(
        update={"query_key_value_bias": vision.flag("attention_bias", False), "causal": False}
    )
    tower = BlockRun(
        block=Block(attention=attention, feed_forward=DenseFeedForward(ffn_size=output)),
        block_count=layer_count(vision, "depth"),
        part=RunPart.ENCODER,
        hidden_size=vision.size("hidden_size"),
        tokens_per_sequence=(side * merge) ** 2,
        entry=_entry(vision, patch),
        exit=_exit(vision, output, merge=merge, tokens=side**2),
    )
    image = f"{side * merge * patch} pixels"
    return joined(fields, text, tower, image=image, text_ties=text.tied_embeddings)


def _entry(vision: Fields, patch: int) -> Entry:
    """Return the patch embedding over two frames, a norm, and a table of positions."""
    width = vision.size("hidden_size")
    side = vision.size("image_size", 336, limit=_SIDE_LIMIT) // patch
    pixels = vision.size("in_channels", 3) * vision.size("temporal_patch_size", 2) * patch**2
    return Entry(
        products=(Product(inner_size=pixels, outer_size=width, bias=True),),
        norm=Norm.RMS,
        norm_widths=(width,),
        table_elements=side**2 * width,
    )


def _exit(vision: Fields, output: int, *, merge: int, tokens: int) -> Exit:
    """Return a norm, the merging convolution, a product with a norm, and a gated feed-forward."""
    width, inner = vision.size("hidden_size"), vision.size("intermediate_size", 13696)

    def product(inner_size: int, outer_size: int, *, bias: bool = False) -> Product:
        return Product(
            inner_size=inner_size, outer_size=outer_size, bias=bias, tokens_per_sequence=tokens
        )

    return Exit(
        products=(
            product(merge**2 * width, output, bias=True),
            product(output, output),
            product(output, inner),
            product(output, inner),
            product(inner, output),
        ),
        norm=Norm.RMS,
        norm_widths=(width,),
        table_elements=2 * output,  # the norm after the product, which has a bias
        output_size=output,
        output_tokens_per_sequence=tokens,
    )
