"""Vision-language models of Hugging Face that take images of any size: one size is assumed.

minimax_m3_vl, ovis2, paddleocr_vl and video_llama_3. Each reader states the defaults of its
configuration class (`configuration_<type>.py` of transformers 5.23).
"""

from __future__ import annotations

from planner.errors import DocumentError
from planner.importers.fields import LAYER_LIMIT, Fields
from planner.importers.hugging_face import ernie, minimax
from planner.importers.hugging_face.attention import multi_head
from planner.importers.hugging_face.text import text_decoder
from planner.importers.hugging_face.towers import biased_block, joined, patch_count, side_pixels
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
_MERGE_LIMIT = 64
_PADDLE_VISION = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
}
_LLAMA3_VISION = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
}
_OVIS_VISION = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 24,
    "num_attention_heads": 8,
}
_M3_VISION = {
    "hidden_size": 1280,
    "intermediate_size": 5120,
    "num_hidden_layers": 32,
    "num_attention_heads": 16,
}
_PADDLE_TEXT = {
    "model_type": "paddleocr_vl_text",
    "num_key_value_heads": 2,
    "head_dim": 128,
    "tie_word_embeddings": True,
}


def paddleocr_vl(fields: Fields, name: str) -> ModelGraph:
    """Return a paddleocr_vl: squares of patches normed, merged and mapped to an ernie4_5.

    The decoder's fields may stand beside the others, as in released files.
    """
    own = fields.is_mapping("text_config")
    section = fields.section("text_config") if own else fields
    text = ernie.ernie4_5(section.filled(_PADDLE_TEXT), name)
    vision = fields.section("vision_config", defaults=_PADDLE_VISION)
    width = vision.size("hidden_size")
    merge, side, tokens = _grid(vision, patch=14, merge=2)
    _, learned = patch_count(vision, image=384, patch=14)
    merged = merge**2 * width
    exit_ = _way(
        text, (width, width), ((merged, merged), (merged, text.hidden_size)), tokens=tokens
    )
    entry = Entry(products=(_patches(vision, patch=14),), table_elements=learned * width)
    run = _run(vision, biased_block(vision, rotary=True), side**2, entry=entry, exit_=exit_)
    return joined(fields, text, run, image=_image(vision, side, patch=14), tied=True)


def video_llama_3(fields: Fields, name: str) -> ModelGraph:
    """Return a video_llama_3: rotary positions, two products, every patch of an image a token."""
    text = text_decoder(fields, name, default="qwen2")
    vision = fields.section("vision_config", defaults=_LLAMA3_VISION)
    width, output = vision.size("hidden_size"), text.hidden_size
    _, side, tokens = _grid(vision, patch=16, merge=1)
    exit_ = _way(text, (width,), ((width, output), (output, output)), tokens=tokens)
    entry = Entry(products=(_patches(vision, patch=16),))
    run = _run(vision, biased_block(vision, rotary=True), side**2, entry=entry, exit_=exit_)
    image = _image(vision, side, patch=16)
    return joined(fields, text, run, image=image, text_ties=text.tied_embeddings)


def ovis2(fields: Fields, name: str) -> ModelGraph:
    """Return an ovis2: a patch is a mean of a table's rows, by a head of logits over them.

    Raises:
        DocumentError: if the table is not as wide as the decoder.
    """
    text = text_decoder(fields, name, default="qwen2")
    vision = fields.section("vision_config", defaults=_OVIS_VISION)
    width, output = vision.size("hidden_size"), fields.size("hidden_size", 1536)
    if output != text.hidden_size:
        raise DocumentError(
            f"must be the decoder's hidden_size {text.hidden_size}",
            field=fields.spelling("hidden_size"),
            value=output,
            remedy="make both equal",
        )
    bias = vision.flag("qkv_bias", False)
    block = Block(
        attention=multi_head(vision).model_copy(
            update={
                "query_key_value_bias": bias,
                "output_bias": bias,
                "rotary": False,
                "causal": False,
            }
        ),
        feed_forward=DenseFeedForward(
            ffn_size=vision.size("intermediate_size"), bias=vision.flag("mlp_bias", False)
        ),
    )
    pixels, patches = patch_count(vision, image=224, patch=14)
    stride = vision.size("hidden_stride", 1, limit=_MERGE_LIMIT)
    tokens = max(patches // stride**2, 1)
    rows = vision.size("vocab_size", 16384)
    own = rows - vision.size("num_visual_indicator_tokens", 5, minimum=0)
    exit_ = Exit(
        products=(
            Product(inner_size=stride**2 * width, outer_size=own, tokens_per_sequence=tokens),
            Product(inner_size=rows, outer_size=output, tokens_per_sequence=tokens),
        ),
        norm_widths=(own,),
        table_elements=width,  # the norm after the blocks, which has no bias
        output_size=output,
        output_tokens_per_sequence=tokens,
    )
    entry = Entry(
        products=(_patches(vision, patch=14),),
        norm=Norm.RMS,
        norm_widths=(width,),
        table_elements=patches * width,
    )
    run = _run(vision, block, patches, entry=entry, exit_=exit_)
    return joined(fields, text, run, image=f"{pixels} pixels", tied=True)


def minimax_m3_vl(fields: Fields, name: str) -> ModelGraph:
    """Return a minimax_m3_vl: patches are mapped to the decoder's width, merged, mapped again."""
    section = fields.section("text_config", aliases=minimax.ALIASES)
    text = minimax.minimax_m3_vl_text(section, name)
    vision = fields.section("vision_config", defaults=_M3_VISION)
    width, output = vision.size("hidden_size"), text.hidden_size
    merge, side, tokens = _grid(vision, patch=14, merge=2)
    inner = fields.size("projector_hidden_size", 6144)

    def product(a: int, b: int, rows: int) -> Product:
        return Product(inner_size=a, outer_size=b, bias=True, tokens_per_sequence=rows)

    exit_ = Exit(
        products=(
            product(width, inner, side**2),
            product(inner, output, side**2),
            product(merge**2 * output, inner, tokens),
            product(inner, output, tokens),
        ),
        output_size=output,
        output_tokens_per_sequence=tokens,
    )
    frames = vision.size("temporal_patch_size", 2)
    patch = _patches(vision, patch=14)
    entry = Entry(
        products=(
            patch.model_copy(update={"inner_size": frames * patch.inner_size, "bias": False}),
        ),
        norm_widths=(width,),
    )
    run = _run(vision, biased_block(vision, rotary=True), side**2, entry=entry, exit_=exit_)
    image = _image(vision, side, patch=14)
    return joined(fields, text, run, image=image, text_ties=text.tied_embeddings)


def _grid(vision: Fields, *, patch: int, merge: int) -> tuple[int, int, int]:
    """Return the side of squares that are merged, that of the image in patches, and its tokens."""
    merged = vision.size("spatial_merge_size", merge, limit=_MERGE_LIMIT) if merge > 1 else 1
    cells = max(_IMAGE_PIXELS // (side_pixels(vision, "patch_size", patch) * merged), 1)
    return merged, cells * merged, cells**2


def _patches(vision: Fields, *, patch: int) -> Product:
    side = side_pixels(vision, "patch_size", patch)
    return Product(
        inner_size=vision.size("num_channels", 3) * side**2,
        outer_size=vision.size("hidden_size"),
        bias=True,
    )


def _way(
    text: ModelGraph, norms: tuple[int, ...], sizes: tuple[tuple[int, int], ...], *, tokens: int
) -> Exit:
    """Return norms, and products with biases to the decoder's width."""
    return Exit(
        products=tuple(
            Product(inner_size=a, outer_size=b, bias=True, tokens_per_sequence=tokens)
            for a, b in sizes
        ),
        norm_widths=norms,
        output_size=text.hidden_size,
        output_tokens_per_sequence=tokens,
    )


def _run(vision: Fields, block: Block, tokens: int, *, entry: Entry, exit_: Exit) -> BlockRun:
    return BlockRun(
        block=block,
        block_count=vision.size("num_hidden_layers", limit=LAYER_LIMIT),
        part=RunPart.ENCODER,
        hidden_size=vision.size("hidden_size"),
        tokens_per_sequence=tokens,
        entry=entry,
        exit=exit_,
    )


def _image(vision: Fields, side: int, *, patch: int) -> str:
    return f"{side * side_pixels(vision, 'patch_size', patch)} pixels"
