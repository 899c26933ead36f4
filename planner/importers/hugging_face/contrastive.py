"""Pairs of an encoder of images and one of text of Hugging Face: clip, siglip and siglip2.

A sequence is one text and one image; the loss over all pairs of a batch is left out. Each reader
states the defaults of its configuration class (`configuration_<type>.py` of transformers 5.23).
"""

from __future__ import annotations

from planner.errors import DocumentError, UnsupportedModelError
from planner.importers.fields import POSITION_LIMIT, Fields
from planner.importers.hugging_face.attention import BIASED, layer_count, multi_head
from planner.importers.hugging_face.heads import named_class
from planner.importers.hugging_face.towers import Tower, clip_tower, siglip2_tower, siglip_tower
from planner.schema.model import (
    Block,
    BlockRun,
    DenseFeedForward,
    Entry,
    Exit,
    ModelGraph,
    Norm,
    Product,
)

_SIZES = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
}
_CLIP_TEXT = {
    **_SIZES,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "vocab_size": 49408,
    "max_position_embeddings": 77,
}
_SIGLIP_TEXT = {**_SIZES, "vocab_size": 32000, "max_position_embeddings": 64}
_LEFT_OUT = "the loss over all pairs of a batch is left out"


def clip(fields: Fields, name: str) -> ModelGraph:
    """Return a clip: a tower with a class token, text that sees what is before, two products."""
    text = fields.section("text_config", defaults=_CLIP_TEXT)
    tower = clip_tower(fields.section("vision_config", defaults=_SIZES))
    width, projected = text.size("hidden_size"), fields.size("projection_dim", 512)
    _require_as_wide(fields, "projection_dim", projected, width)
    product = Product(inner_size=tower.hidden_size, outer_size=projected, tokens_per_sequence=1)
    own = Product(inner_size=width, outer_size=projected, tokens_per_sequence=1)
    return _pair(fields, name, text, tower, seen=product, read=own, causal=True, scalars=1)


def siglip(fields: Fields, name: str) -> ModelGraph:
    """Return a siglip: a tower whose rows are pooled by attention, text that sees both sides."""
    return _siglip(fields, name, siglip_tower(fields.section("vision_config", defaults=_SIZES)))


def siglip2(fields: Fields, name: str) -> ModelGraph:
    """Return a siglip2: a siglip whose images are any shape of as many patches."""
    return _siglip(fields, name, siglip2_tower(fields.section("vision_config", defaults=_SIZES)))


def _siglip(fields: Fields, name: str, tower: Tower) -> ModelGraph:
    text = fields.section("text_config", defaults=_SIGLIP_TEXT)
    width = text.size("hidden_size")
    projected = text.size("projection_size", width)
    _require_as_wide(text, "projection_size", projected, tower.hidden_size)
    own = Product(inner_size=width, outer_size=projected, bias=True, tokens_per_sequence=1)
    return _pair(fields, name, text, tower, seen=None, read=own, causal=False, scalars=2)


def _pair(  # noqa: PLR0913  (what a pair is)
    fields: Fields,
    name: str,
    text: Fields,
    tower: Tower,
    *,
    seen: Product | None,
    read: Product,
    causal: bool,
    scalars: int,
) -> ModelGraph:
    """Return the tower before the text; `scalars` are the weights of the loss.

    Raises:
        UnsupportedModelError: if a class is named that has one of both alone, or classes.
    """
    named = named_class(fields)
    if named is not None and not named.endswith("Model"):
        raise UnsupportedModelError(
            "names a class with another head than the pair's",
            field=fields.spelling("architectures"),
            value=named[:64],
            remedy="trace it with `meshwright trace --transformers config.json`",
        )
    width = text.size("hidden_size")
    positions = text.size("max_position_embeddings", limit=POSITION_LIMIT)
    attention = multi_head(text).model_copy(update={**BIASED, "causal": causal})
    block = Block(
        attention=attention,
        feed_forward=DenseFeedForward(
            ffn_size=text.size("intermediate_size"), gated=False, bias=True
        ),
        norm=Norm.LAYER,
    )
    exit_ = Exit(
        norm_widths=(tower.hidden_size,),
        products=() if seen is None else (seen,),
        table_elements=tower.unread_elements,
        output_size=width,
        output_tokens_per_sequence=1,
    )
    if seen is None:
        _require_as_wide(text, "hidden_size", width, tower.hidden_size)
    return ModelGraph(
        name=name,
        architecture=fields.text("model_type") or "clip",
        hidden_size=width,
        vocabulary_size=text.size("vocab_size"),
        learned_position_count=positions,
        final_norm=Norm.LAYER,
        head_size=0,
        before_head=Entry(products=(read,), table_elements=scalars),
        maximum_sequence_length=positions,
        runs=(tower.run(exit_), BlockRun(block=block, block_count=layer_count(text))),
        assumptions=(
            f"a sequence is a text and an image of {tower.image_pixels} pixels",
            _LEFT_OUT,
        ),
    )


def _require_as_wide(fields: Fields, name: str, given: int, width: int) -> None:
    """Raise unless both rows that are compared are as wide.

    Raises:
        DocumentError: naming the field.
    """
    if given != width:
        raise DocumentError(
            f"must be {width}, as wide as what it is compared with",
            field=fields.spelling(name),
            value=given,
            remedy="make both equal, or trace the model with `meshwright trace --transformers`",
        )
