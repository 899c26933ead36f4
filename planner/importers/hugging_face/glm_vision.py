"""GLM-4.1V and GLM-4.5V of Hugging Face (glm4v, glm4v_moe): a tower before a glm4 or glm4_moe.

Defaults are those of `configuration_<type>.py` of transformers 5.23. The tower takes images of any
size; one is assumed.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.errors import DocumentError
from planner.importers.fields import Fields
from planner.importers.hugging_face import glm
from planner.importers.hugging_face.attention import layer_count, multi_head
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
_SIDE_LIMIT = 2**14
_TEXT = {"model_type": "glm4v_text", "head_dim": None, "max_position_embeddings": 32768}
_OCR_TEXT = {
    "model_type": "glm_ocr_text",
    "attention_bias": False,
    "num_key_value_heads": 8,
    "head_dim": None,
    "max_position_embeddings": 131_072,
}
_OCR_VISION = {"hidden_size": 1024, "num_heads": 16, "depth": 24}
_MOE_TEXT = {
    "model_type": "glm4v_moe_text",
    "attention_bias": True,
    "max_position_embeddings": 65536,
    "num_nextn_predict_layers": 0,
}


def glm4v(fields: Fields, name: str) -> ModelGraph:
    """Return a glm4v: its tower before a glm4."""
    return _model(fields, glm.glm4(fields.section("text_config", defaults=_TEXT), name))


def glm4v_moe(fields: Fields, name: str) -> ModelGraph:
    """Return a glm4v_moe: the same tower before a glm4_moe."""
    section = fields.section("text_config", aliases=glm.GLM4_MOE_ALIASES, defaults=_MOE_TEXT)
    return _model(fields, glm.glm4_moe(section, name))


def glm46v(fields: Fields, name: str) -> ModelGraph:
    """Return a glm46v: the same tower before either, as `text_config` says."""
    routed = fields.section("text_config").text("model_type") == "glm4v_moe_text"
    return glm4v_moe(fields, name) if routed else glm4v(fields, name)


def glm_ocr(fields: Fields, name: str) -> ModelGraph:
    """Return a glm_ocr: queries and keys normed, biases in its tower, no table of positions.

    Raises:
        DocumentError: if the tower does not put out what the decoder takes.
    """
    text = glm.glm4(fields.section("text_config", defaults=_OCR_TEXT), name)
    vision = _section(fields, _OCR_VISION)
    output = _output(vision, text, 1536)
    bias = vision.flag("attention_bias", True)
    attention = multi_head(vision, "num_heads").model_copy(
        update={
            "query_key_value_bias": bias,
            "output_bias": bias,
            "query_key_norm": True,
            "causal": False,
        }
    )
    feed_forward = DenseFeedForward(ffn_size=vision.size("intermediate_size", 4096), bias=bias)
    patch, merge, side = _sides(vision)
    entry = _entry(vision, patch).model_copy(update={"norm_widths": (), "table_elements": 0})
    inner = output * vision.size("in_channels", 3)  # as its class has it
    exit_ = _exit(vision, output, merge=merge, tokens=side**2, inner=inner)
    block = Block(attention=attention, feed_forward=feed_forward)
    return _tower(fields, text, block, entry=entry, exit_=exit_)


def _model(fields: Fields, text: ModelGraph) -> ModelGraph:
    """Return the tower, squares of whose patches one convolution merges, before its decoder.

    Raises:
        DocumentError: if the tower does not put out what the decoder takes.
    """
    vision = _section(fields, {"hidden_size": 1536, "num_heads": 12, "depth": 24})
    output = _output(vision, text, 4096)
    patch, merge, side = _sides(vision)
    attention = multi_head(vision, "num_heads").model_copy(
        update={"query_key_value_bias": vision.flag("attention_bias", False), "causal": False}
    )
    block = Block(attention=attention, feed_forward=DenseFeedForward(ffn_size=output))
    inner = vision.size("intermediate_size", 13696)
    exit_ = _exit(vision, output, merge=merge, tokens=side**2, inner=inner)
    return _tower(fields, text, block, entry=_entry(vision, patch), exit_=exit_)


def _section(fields: Fields, sizes: Mapping[str, int]) -> Fields:
    aliases = {"num_attention_heads": "num_heads", "num_hidden_layers": "depth"}
    return fields.section("vision_config", aliases=aliases).filled(sizes)


def _output(vision: Fields, text: ModelGraph, default: int) -> int:
    output = vision.size("out_hidden_size", default)
    if output != text.hidden_size:
        raise DocumentError(
            f"must be the decoder's hidden_size {text.hidden_size}",
            field=vision.spelling("out_hidden_size"),
            value=output,
            remedy="make both equal",
        )
    return output


def _sides(vision: Fields) -> tuple[int, int, int]:
    """Return the side of a patch in pixels, of a merged square in patches, of an image in those."""
    patch = vision.size("patch_size", 14, limit=_SIDE_LIMIT)
    merge = vision.size("spatial_merge_size", 2, limit=_SIDE_LIMIT)
    return patch, merge, max(_IMAGE_PIXELS // (patch * merge), 1)


def _tower(
    fields: Fields, text: ModelGraph, block: Block, *, entry: Entry, exit_: Exit
) -> ModelGraph:
    """Return the tower before its decoder."""
    vision = _section(fields, {"hidden_size": 1536, "depth": 24})
    patch, merge, side = _sides(vision)
    tower = BlockRun(
        block=block,
        block_count=layer_count(vision, "depth"),
        part=RunPart.ENCODER,
        hidden_size=vision.size("hidden_size"),
        tokens_per_sequence=(side * merge) ** 2,
        entry=entry,
        exit=exit_,
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


def _exit(vision: Fields, output: int, *, merge: int, tokens: int, inner: int) -> Exit:
    """Return a norm, the merging convolution, a product with a norm, and a gated feed-forward."""
    width = vision.size("hidden_size")

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
