"""InternVL of Hugging Face (internvl): a tower of its own before a qwen2, llama or another decoder.

Defaults are those of `configuration_internvl.py` of transformers 5.23. An image is one tile.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.errors import DocumentError
from planner.importers.fields import Fields
from planner.importers.hugging_face.attention import layer_count, multi_head
from planner.importers.hugging_face.text import text_decoder
from planner.importers.hugging_face.towers import joined, side_pixels
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

_TOWER = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
}
# What configuration_intern_vit.py of its repositories fills in.
_CHAT_TOWER = {
    "hidden_size": 3200,
    "intermediate_size": 12800,
    "num_hidden_layers": 48,
    "num_attention_heads": 25,
}
_READ_AS = "read as an internvl, whose parts it has: the model's own code was not run"


def internvl(fields: Fields, name: str) -> ModelGraph:
    """Return an internvl: parts of blocks are scaled, squares of patches merged, two products."""
    return _internvl(fields, name, _TOWER, default="qwen2", tied=True)


def internvl_chat(fields: Fields, name: str) -> ModelGraph:
    """Return an internvl_chat, whose own code is never run, as the internvl whose parts it has."""
    vision, text = fields.section("vision_config"), fields.section("llm_config")
    tower = {
        **vision.values(),
        "attention_bias": vision.flag("qkv_bias", False),
        "use_qk_norm": vision.flag("qk_normalization", True),
        "norm_type": vision.text("norm_type") or "rms_norm",
        "image_size": fields.size("force_image_size", side_pixels(vision, "image_size", 224)),
    }
    converted = fields.replaced(
        {
            "vision_config": tower,
            "text_config": text.values(),
            "tie_word_embeddings": text.flag("tie_word_embeddings", False),
        }
    )
    graph = _internvl(converted, name, _CHAT_TOWER, default="qwen2", tied=False)
    return graph.model_copy(update={"assumptions": (*graph.assumptions, _READ_AS)})


def _internvl(
    fields: Fields, name: str, sizes: Mapping[str, object], *, default: str, tied: bool
) -> ModelGraph:
    """Return a tower whose defaults are `sizes` before a decoder of the type `default`."""
    text = text_decoder(fields, name, default=default)
    vision = fields.section("vision_config", defaults=sizes)
    width = vision.size("hidden_size")
    pixels, patch = side_pixels(vision, "image_size", 448), side_pixels(vision, "patch_size", 14)
    side = pixels // patch
    merge = round(1 / fields.number("downsample_ratio", 0.5))
    if not side or side % merge:
        raise DocumentError(
            f"must merge the {side} patches of an image's side without a rest",
            field=fields.spelling("downsample_ratio"),
            value=1 / merge,
            remedy="use 0.5 with images of 448 pixels in patches of 14",
        )
    tokens = (side // merge) ** 2
    tower = BlockRun(
        block=_block(vision),
        block_count=layer_count(vision),
        part=RunPart.ENCODER,
        hidden_size=width,
        tokens_per_sequence=side**2 + 1,
        entry=_entry(vision, side=side, patch=patch),
        exit=_exit(vision, text.hidden_size, read=width * merge**2, tokens=tokens),
    )
    return joined(fields, text, tower, image=f"{pixels} pixels in one tile", tied=tied)


def qianfan_ocr(fields: Fields, name: str) -> ModelGraph:
    """Return a qianfan_ocr: an internvl whose tower's queries, keys and values have biases."""
    return _internvl(fields, name, {**_TOWER, "attention_bias": True}, default="qwen3", tied=False)


def _block(vision: Fields) -> Block:
    """Return a block; what scales each channel of its two parts stands among the feed-forward's."""
    normed = vision.flag("use_qk_norm", False)
    attention = multi_head(vision).model_copy(
        update={
            "query_key_value_bias": vision.flag("attention_bias", False),
            "output_bias": True,
            "query_key_norm": normed,
            "query_key_norm_spans_heads": normed,
            "rotary": False,
            "causal": False,
        }
    )
    feed_forward = DenseFeedForward(
        ffn_size=vision.size("intermediate_size"),
        gated=False,
        bias=True,
        scale_elements=2 * vision.size("hidden_size"),
    )
    return Block(attention=attention, feed_forward=feed_forward, norm=_norm(vision))


def _norm(vision: Fields) -> Norm:
    return Norm.RMS if vision.text("norm_type") == "rms_norm" else Norm.LAYER


def _entry(vision: Fields, *, side: int, patch: int) -> Entry:
    """Return the patch embedding, a class token, and learned positions unless told."""
    width = vision.size("hidden_size")
    learned = side**2 + 1 if vision.flag("use_absolute_position_embeddings", True) else 0
    rows = 1 + learned + vision.flag("use_mask_token", False)
    product = Product(
        inner_size=vision.size("num_channels", 3) * patch**2,
        outer_size=width,
        bias=True,
        tokens_per_sequence=side**2,
    )
    return Entry(products=(product,), table_elements=rows * width)


def _exit(vision: Fields, output: int, *, read: int, tokens: int) -> Exit:
    """Return a norm of merged squares and two products; a norm before unless rows are pooled."""
    width = vision.size("hidden_size")
    last = () if vision.flag("use_mean_pooling", True) else (width,)
    return Exit(
        products=(
            Product(inner_size=read, outer_size=output, bias=True, tokens_per_sequence=tokens),
            Product(inner_size=output, outer_size=output, bias=True, tokens_per_sequence=tokens),
        ),
        norm_widths=(*last, read),
        output_size=output,
        output_tokens_per_sequence=tokens,
    )
