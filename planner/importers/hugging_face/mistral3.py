"""Mistral Small 3.1 of Hugging Face (mistral3): a Pixtral tower before a mistral or ministral3.

Defaults are those of `configuration_mistral3.py` and of what it fills in for its parts, of
transformers 5.23. The tower takes images of any shape up to `image_size`; one is assumed.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.importers.fields import Fields
from planner.importers.hugging_face import dense
from planner.importers.hugging_face.attention import layer_count, multi_head
from planner.importers.hugging_face.text import text_decoder
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
# What configuration_mistral3.py fills in where a part is left out whole.
_TEXT = {
    "model_type": "mistral",
    "hidden_size": 5120,
    "intermediate_size": 32768,
    "num_hidden_layers": 40,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 131_072,
    "sliding_window": None,
}
_VISION = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
}
_LIGHTON_VISION = {**_VISION, "image_size": 1540, "patch_size": 14}


def mistral3(fields: Fields, name: str) -> ModelGraph:
    """Return a mistral3: a tower, a product that merges squares of patches, two more, a decoder."""
    return _mistral3(fields, name, default="mistral", sizes=_VISION)


def _mistral3(fields: Fields, name: str, *, default: str, sizes: Mapping[str, int]) -> ModelGraph:
    """Return a tower whose defaults are `sizes` before a decoder of the type `default`."""
    text = _decoder(fields, name, default)
    vision = fields.section("vision_config", defaults=sizes)
    width = vision.size("hidden_size")
    merge = fields.size("spatial_merge_size", 2, limit=_SIDE_LIMIT)
    patch = vision.size("patch_size", 16, limit=_SIDE_LIMIT)
    side = max(min(_IMAGE_PIXELS, vision.size("image_size", 1024)) // (patch * merge), 1)
    tower = BlockRun(
        block=_block(vision),
        block_count=layer_count(vision),
        part=RunPart.ENCODER,
        hidden_size=width,
        tokens_per_sequence=(side * merge) ** 2,
        entry=Entry(
            products=(
                Product(inner_size=vision.size("num_channels", 3) * patch**2, outer_size=width),
            ),
            norm=Norm.RMS,
            norm_widths=(width,),
        ),
        exit=_projection(fields, text, width=width, merge=merge, tokens=side**2),
    )
    image = f"{side * merge * patch} pixels"
    return joined(fields, text, tower, image=image, tied=True)


def lighton_ocr(fields: Fields, name: str) -> ModelGraph:
    """Return a lighton_ocr: a mistral3 whose decoder is a qwen3 unless told, with larger images."""
    return _mistral3(fields, name, default="qwen3", sizes=_LIGHTON_VISION)


def _decoder(fields: Fields, name: str, default: str) -> ModelGraph:
    """Return the decoder of `text_config`, where there is none that of the type's own class."""
    if not fields.is_mapping("text_config"):
        return dense.mistral(Fields(_TEXT, section="text_config"), name)
    return text_decoder(fields, name, default=default)


def _projection(fields: Fields, text: ModelGraph, *, width: int, merge: int, tokens: int) -> Exit:
    """Return a norm of the patches, the product that merges them, and two to the decoder's width.

    Where `vision_feature_layer` names several layers, what they put out travels to the end
    uncounted.
    """
    bias = fields.flag("multimodal_projector_bias", False)
    output = text.hidden_size
    read = width * max(fields.length("vision_feature_layer"), 1)
    return Exit(
        products=(
            Product(inner_size=merge**2 * width, outer_size=width, tokens_per_sequence=tokens),
            Product(inner_size=read, outer_size=output, bias=bias, tokens_per_sequence=tokens),
            Product(inner_size=output, outer_size=output, bias=bias, tokens_per_sequence=tokens),
        ),
        norm=Norm.RMS,
        norm_widths=(width,),
        output_size=output,
        output_tokens_per_sequence=tokens,
    )


def _block(vision: Fields) -> Block:
    return Block(
        attention=multi_head(vision).model_copy(update={"causal": False}),
        feed_forward=DenseFeedForward(ffn_size=vision.size("intermediate_size")),
    )
