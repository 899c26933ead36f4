"""Vision-language models of Hugging Face: a tower before a decoder (llava, gemma3).

Each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23). A sequence is assumed to have one image: a model graph can say otherwise. Its
tokens are among the job's sequence_length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isqrt
from typing import Any

from planner.errors import DocumentError, UnsupportedModelError
from planner.importers.fields import Fields
from planner.importers.hugging_face import alternating
from planner.importers.hugging_face.text import text_decoder
from planner.importers.hugging_face.towers import Tower, clip_tower, joined, siglip_tower
from planner.schema.model import (
    Exit,
    ModelGraph,
    Product,
)

_VIPLLAVA_LAYERS = 5
VIPLLAVA_ALIASES = {"vision_feature_layers": "vision_feature_layer"}
_TOWER_READERS: Mapping[str, Callable[[Fields], Tower]] = {
    "clip_vision_model": clip_tower,
    "idefics3": siglip_tower,
    "idefics3_vision": siglip_tower,
    "siglip_vision_model": siglip_tower,
    "smolvlm_vision": siglip_tower,
}
# What configuration_gemma3.py fills in: the released gemma-3-4b leaves it out.
_GEMMA3_SIZES = {"model_type": "gemma3_text", "num_attention_heads": 8, "vocab_size": 262_208}


def llava(fields: Fields, name: str) -> ModelGraph:
    """Return a llava: a CLIP or SigLIP tower, two products with an activation, a decoder.

    The tower runs to its end, as its class does, though `vision_feature_layer` may read it before;
    where it names several layers, what they put out travels to the end uncounted.
    """
    text = text_decoder(fields, name)
    tower = vision_tower(fields, default="clip_vision_model")
    default = fields.text("vision_feature_select_strategy") != "full"
    tokens = tower.patch_count if default else tower.token_count
    bias = fields.flag("multimodal_projector_bias", True)
    width, output = tower.hidden_size, text.hidden_size
    read = width * feature_layer_count(fields)
    exit_ = Exit(
        products=(
            Product(inner_size=read, outer_size=output, bias=bias, tokens_per_sequence=tokens),
            Product(inner_size=output, outer_size=output, bias=bias, tokens_per_sequence=tokens),
        ),
        norm_widths=(width,),
        table_elements=tower.unread_elements,
        output_size=output,
        output_tokens_per_sequence=tokens,
    )
    image = f"{tower.image_pixels} pixels"
    return joined(fields, text, tower.run(exit_), image=image, text_ties=text.tied_embeddings)


def vipllava(fields: Fields, name: str) -> ModelGraph:
    """Return a vipllava: a llava that reads five of its tower's layers, normed side by side."""
    text = text_decoder(fields, name)
    tower = vision_tower(fields, default="clip_vision_model")
    tokens, output = tower.patch_count, text.hidden_size
    named = max(fields.length("vision_feature_layer"), 1)
    layers = named if "vision_feature_layer" in fields else _VIPLLAVA_LAYERS
    read = tower.hidden_size * layers
    exit_ = Exit(
        products=(
            Product(inner_size=read, outer_size=output, bias=True, tokens_per_sequence=tokens),
            Product(inner_size=output, outer_size=output, bias=True, tokens_per_sequence=tokens),
        ),
        norm_widths=(tower.hidden_size, read),
        table_elements=tower.unread_elements,
        output_size=output,
        output_tokens_per_sequence=tokens,
    )
    image = f"{tower.image_pixels} pixels"
    return joined(fields, text, tower.run(exit_), image=image, text_ties=text.tied_embeddings)


def gemma3(fields: Fields, name: str) -> ModelGraph:
    """Return a gemma3: a SigLIP tower, its patches pooled to `mm_tokens_per_image`, a decoder.

    Attention among an image's tokens is counted as causal, as that among text is.
    """
    text = alternating.gemma3_text(fields.section("text_config", defaults=_GEMMA3_SIZES), name)
    tower = vision_tower(fields, default="siglip_vision_model")
    tokens = fields.size("mm_tokens_per_image", 256)
    _require_pooling(fields, tower, tokens)
    exit_ = Exit(
        products=(
            Product(
                inner_size=tower.hidden_size,
                outer_size=text.hidden_size,
                tokens_per_sequence=tokens,
            ),
        ),
        norm_widths=(tower.hidden_size,),
        # the weight of the norm after pooling, which has no bias
        table_elements=tower.unread_elements + tower.hidden_size,
        output_size=text.hidden_size,
        output_tokens_per_sequence=tokens,
    )
    ties = fields.text("model_type") == "shieldgemma2" and text.tied_embeddings
    image = f"{tower.image_pixels} pixels"
    return joined(fields, text, tower.run(exit_), image=image, tied=True, text_ties=ties)


def vision_tower(fields: Fields, *, default: str, sizes: Mapping[str, Any] | None = None) -> Tower:
    """Return the tower of `vision_config`; `sizes` are what its own class has for absent fields.

    Raises:
        UnsupportedModelError: if its type cannot be read.
    """
    vision = fields.section("vision_config", defaults=sizes)
    given = vision.text("model_type") or default
    reader = _TOWER_READERS.get(given)
    if reader is None:
        raise UnsupportedModelError(
            "is not a vision tower that can be read",
            field=vision.spelling("model_type"),
            value=given,
            remedy=f"known towers are {', '.join(sorted(_TOWER_READERS))}; or describe the model "
            "as a model graph",
        )
    return reader(vision)


def feature_layer_count(fields: Fields) -> int:
    """Return how many of the tower's layers the projection reads side by side."""
    return max(fields.length("vision_feature_layer"), 1)


def _require_pooling(fields: Fields, tower: Tower, tokens: int) -> None:
    """Raise unless square groups of patches make `tokens` tokens.

    Raises:
        DocumentError: naming the field and the number of patches.
    """
    side = isqrt(tokens)
    if side * side != tokens or isqrt(tower.patch_count) % side:
        raise DocumentError(
            f"must be a square whose side divides that of {tower.patch_count} patches",
            field=fields.spelling("mm_tokens_per_image"),
            value=tokens,
            remedy="use the released value of 256 with images of 896 pixels in patches of 14",
        )
