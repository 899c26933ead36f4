"""Vision-language models of Hugging Face with a CLIP or SigLIP tower, beside llava and gemma3.

aya_vision, cohere2_vision, deepseek_vl, idefics3 and smolvlm, lfm2_vl, llava_next, llava_onevision
and paligemma. Each reader states the defaults of its configuration class (`configuration_<type>.py`
of transformers 5.23). A sequence is assumed to have one image, of one tile where there can be
several.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

from planner.errors import DocumentError
from planner.importers.fields import Fields
from planner.importers.hugging_face import convolution
from planner.importers.hugging_face.text import text_decoder
from planner.importers.hugging_face.towers import Tower, joined, siglip2_tower
from planner.importers.hugging_face.vision import feature_layer_count, vision_tower
from planner.schema.model import Exit, ModelGraph, Product

_MERGE_LIMIT = 64
_SIGLIP = "siglip_vision_model"
# What the configuration classes of the idefics3 family's own tower fill in.
IDEFICS3_TOWER = {
    "hidden_size": 1152,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "patch_size": 32,
    "vision_use_head": False,
}


def deepseek_vl(fields: Fields, name: str) -> ModelGraph:
    """Return a deepseek_vl: a SigLIP tower, two products, a llama."""
    text = text_decoder(fields, name)
    tower = vision_tower(fields, default=_SIGLIP)
    tokens, output = tower.patch_count, text.hidden_size
    products = (_product(tower.hidden_size, output, tokens), _product(output, output, tokens))
    exit_ = _exit(tower, text, products, tokens=tokens)
    return joined(fields, text, tower.run(exit_), image=_image(tower), tied=True)


def paligemma(fields: Fields, name: str) -> ModelGraph:
    """Return a paligemma: a SigLIP tower, one product, a gemma or gemma2.

    Attention among image and prompt is counted as causal, as that among text is.

    Raises:
        DocumentError: if the product is not as wide as the decoder.
    """
    text = text_decoder(fields, name, default="gemma")
    tower = vision_tower(fields, default=_SIGLIP)
    width = fields.size("projection_dim", 2048)
    if width != text.hidden_size:
        raise DocumentError(
            f"must be the decoder's hidden_size {text.hidden_size}",
            field=fields.spelling("projection_dim"),
            value=width,
            remedy="make both equal",
        )
    product = _product(tower.hidden_size, width, tower.patch_count)
    exit_ = _exit(tower, text, (product,), tokens=tower.patch_count)
    return joined(fields, text, tower.run(exit_), image=_image(tower), tied=True)


def llava_next(fields: Fields, name: str) -> ModelGraph:
    """Return a llava_next (LLaVA 1.6): a CLIP tower, two products, a row that ends a line."""
    default = fields.text("vision_feature_select_strategy") != "full"
    text = text_decoder(fields, name)
    tower = vision_tower(fields, default="clip_vision_model")
    return _tiled(fields, text, tower, patches_alone=default, text_ties=False)


def llava_onevision(fields: Fields, name: str) -> ModelGraph:
    """Return a llava_onevision: the same behind a SigLIP tower, all of whose rows are read."""
    default = fields.text("vision_feature_select_strategy") == "default"
    text = text_decoder(fields, name, default="qwen2")
    tower = vision_tower(fields, default=_SIGLIP)
    return _tiled(fields, text, tower, patches_alone=default, text_ties=text.tied_embeddings)


def idefics3(fields: Fields, name: str) -> ModelGraph:
    """Return an idefics3 or smolvlm: squares of patches merged by one product."""
    text = text_decoder(fields, name)
    given = f"{fields.text('model_type')}_vision"
    tower = vision_tower(fields, default=given, sizes=IDEFICS3_TOWER)
    merge, tokens = _merged(fields, tower, "scale_factor")
    width = tower.hidden_size * merge**2
    product = _product(width, text.hidden_size, tokens, bias=False)
    exit_ = _exit(tower, text, (product,), tokens=tokens)
    return joined(fields, text, tower.run(exit_), image=_image(tower))


def aya_vision(fields: Fields, name: str) -> ModelGraph:
    """Return an aya_vision: merged squares are normed, and pass two products and a gate."""
    text = text_decoder(fields, name, default="cohere2")
    width = fields.size("alignment_intermediate_size", text.hidden_size)
    return _aligned(fields, text, width, normed=True)


def cohere2_vision(fields: Fields, name: str) -> ModelGraph:
    """Return a cohere2_vision (Command A Vision): the same without a norm, and wide between."""
    text = text_decoder(fields, name, default="cohere2")
    width = fields.size("alignment_intermediate_size", 36864)
    return _aligned(fields, text, width, normed=False)


def lfm2_vl(fields: Fields, name: str) -> ModelGraph:
    """Return a lfm2_vl: a SigLIP 2 tower, squares of patches normed and merged, a lfm2."""
    text = convolution.lfm2(fields.section("text_config"), name)
    tower = siglip2_tower(fields.section("vision_config"))
    merge, tokens = _merged(fields, tower, "downsample_factor")
    read, inner = tower.hidden_size * merge**2, fields.size("projector_hidden_size", 2560)
    bias = fields.flag("projector_bias", True)
    products = (
        _product(read, inner, tokens, bias=bias),
        _product(inner, text.hidden_size, tokens, bias=bias),
    )
    normed = 2 * read if fields.flag("projector_use_layernorm", True) else 0
    exit_ = _exit(tower, text, products, tokens=tokens, more=normed)
    return joined(fields, text, tower.run(exit_), image=_image(tower), tied=True)


def _tiled(
    fields: Fields, text: ModelGraph, tower: Tower, *, patches_alone: bool, text_ties: bool
) -> ModelGraph:
    """Return tower and decoder with two products between, and a learned row that ends a line."""
    tokens = tower.patch_count if patches_alone else tower.token_count
    bias = fields.flag("multimodal_projector_bias", True)
    read = tower.hidden_size * feature_layer_count(fields)
    products = (
        _product(read, text.hidden_size, tokens, bias=bias),
        _product(text.hidden_size, text.hidden_size, tokens, bias=bias),
    )
    exit_ = _exit(tower, text, products, tokens=tokens, more=text.hidden_size)
    return joined(fields, text, tower.run(exit_), image=_image(tower), text_ties=text_ties)


def _aligned(fields: Fields, text: ModelGraph, width: int, *, normed: bool) -> ModelGraph:
    """Return tower and decoder, squares of patches merged by products with a gate between.

    Raises:
        DocumentError: if `width` has no halves, of which one gates the other.
    """
    if width % 2:
        raise DocumentError(
            "must be even, since one half gates the other",
            field=fields.spelling("alignment_intermediate_size"),
            value=width,
            remedy="use an even number",
        )
    tower = vision_tower(fields, default=_SIGLIP)
    merge, tokens = _merged(fields, tower, "downsample_factor")
    read = tower.hidden_size * merge**2
    products = (
        _product(read, width, tokens),
        _product(width // 2, text.hidden_size, tokens),
    )
    exit_ = _exit(tower, text, products, tokens=tokens, more=2 * read if normed else 0)
    return joined(fields, text, tower.run(exit_), image=_image(tower), tied=True)


def _merged(fields: Fields, tower: Tower, name: str) -> tuple[int, int]:
    """Return the side of the squares of patches that become one token, and how many do.

    Raises:
        DocumentError: if the side does not divide the tower's.
    """
    merge = fields.size(name, 2, limit=_MERGE_LIMIT)
    side = isqrt(tower.patch_count)
    if side % merge:
        raise DocumentError(
            f"must divide the {side} patches of an image's side",
            field=fields.spelling(name),
            value=merge,
            remedy=f"use a divisor of {side}",
        )
    return merge, (side // merge) ** 2


def _exit(
    tower: Tower, text: ModelGraph, products: Sequence[Product], *, tokens: int, more: int = 0
) -> Exit:
    """Return the tower's last norm and the way to the decoder; `more` counts weights beside."""
    return Exit(
        products=tuple(products),
        norm_widths=(tower.hidden_size,),
        table_elements=tower.unread_elements + more,
        output_size=text.hidden_size,
        output_tokens_per_sequence=tokens,
    )


def _product(inner: int, outer: int, tokens: int, *, bias: bool = True) -> Product:
    return Product(inner_size=inner, outer_size=outer, bias=bias, tokens_per_sequence=tokens)


def _image(tower: Tower) -> str:
    return f"{tower.image_pixels} pixels in one tile"
