"""Llama-4 of Hugging Face: a tower before the decoder of `positions`.

Defaults are those of `configuration_llama4.py` of transformers 5.23. A sequence is assumed to have
one image of one tile.
"""

from __future__ import annotations

from math import isqrt

from planner.errors import DocumentError
from planner.importers.fields import LAYER_LIMIT, Fields
from planner.importers.hugging_face.positions import llama4_text
from planner.importers.hugging_face.towers import Tower, class_token_tower, joined
from planner.schema.model import Exit, ModelGraph, Product

_WIDTHS = {"hidden_size": 768, "intermediate_size": 5632, "num_attention_heads": 16}
_DEFAULTS = {**_WIDTHS, "num_hidden_layers": 34, "image_size": 448, "patch_size": 14}

_WHOLE = 1e-9  # how far from 1 rounding leaves a ratio times its number


def llama4(fields: Fields, name: str) -> ModelGraph:
    """Return a llama4: a tower, a square of patches made one token, a decoder."""
    given = fields.section("text_config", defaults={"model_type": "llama4_text"})
    text = llama4_text(given, name)
    if not fields.is_mapping("vision_config"):
        said = "there is no vision_config: the decoder alone was read"
        return text.model_copy(update={"architecture": "llama4", "assumptions": (said,)})
    vision = fields.section("vision_config", defaults=_DEFAULTS)
    tower = class_token_tower(vision, rotary=True)
    pixels = f"{tower.image_pixels} pixels (one tile)"
    return joined(fields, text, tower.run(_exit(vision, tower, text)), image=pixels)


def _exit(vision: Fields, tower: Tower, text: ModelGraph) -> Exit:
    """Return the norm, the adapter after the patches were merged, and the projection.

    Raises:
        DocumentError: if widths that follow one another are not equal.
    """
    side = _merged_side(vision)
    tokens = max(isqrt(tower.patch_count) // side, 1) ** 2
    merged, inner = tower.hidden_size * side * side, vision.size("projector_input_dim", 4096)
    outer, output = (
        vision.size("projector_output_dim", 4096),
        vision.size("vision_output_dim", 7680),
    )
    _require_equal(vision, "intermediate_size", vision.size("intermediate_size"), merged)
    _require_equal(vision, "projector_output_dim", outer, inner)
    _require_equal(vision, "vision_output_dim", output, outer)
    widths = ((merged, inner), (outer, outer), (output, text.hidden_size))
    return Exit(
        products=tuple(
            Product(inner_size=left, outer_size=right, tokens_per_sequence=tokens)
            for left, right in widths
        ),
        norm_widths=(tower.hidden_size,),
        output_size=text.hidden_size,
        output_tokens_per_sequence=tokens,
    )


def _merged_side(vision: Fields) -> int:
    """Return the side of the square of patches that `pixel_shuffle_ratio` makes one token.

    Raises:
        DocumentError: if one over the ratio is no whole number.
    """
    ratio = vision.number("pixel_shuffle_ratio", 0.5)
    side = round(1 / ratio) if 1 / LAYER_LIMIT <= ratio <= 1 else 0
    if not side or abs(side * ratio - 1) > _WHOLE:
        raise DocumentError(
            "must be one over a whole number",
            field=vision.spelling("pixel_shuffle_ratio"),
            value=ratio,
            remedy="use the released value of 0.5",
        )
    return side


def _require_equal(vision: Fields, field: str, value: int, expected: int) -> None:
    if value != expected:
        raise DocumentError(
            f"must be {expected}, the width of what comes before it",
            field=vision.spelling(field),
            value=value,
            remedy="make both equal, as its class needs",
        )
