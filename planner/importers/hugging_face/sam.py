"""Vision-language models of Hugging Face behind a SAM tower: got_ocr2 and pp_chart2table.

Most blocks see windows of patches, and convolutions merge sixteen patches to a token. Defaults are
those of `configuration_<type>.py` of transformers 5.23. A sequence is assumed to have one image.
"""

from __future__ import annotations

from itertools import groupby
from math import isqrt

from planner.importers.fields import LAYER_LIMIT, Fields
from planner.importers.hugging_face.text import text_decoder
from planner.importers.hugging_face.towers import biased_block, joined, patch_count, patch_product
from planner.schema.model import Block, BlockRun, Entry, Exit, ModelGraph, Product, RunPart

_KERNEL = 9  # of three by three
_STRIDED = 4  # patches that a stride of two in both directions makes one
_GLOBAL = frozenset({2, 5, 8, 11})
_TEXT = {
    "vocab_size": 151_860,
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "tie_word_embeddings": True,
}
_VISION = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "mlp_dim": 3072,
}


def got_ocr2(fields: Fields, name: str) -> ModelGraph:
    """Return a got_ocr2: windows of 14 patches but in every third block, a qwen2."""
    text = text_decoder(fields, name, default="qwen2", defaults=_TEXT)
    vision = fields.section("vision_config", defaults=_VISION)
    pixels, patches = patch_count(vision, image=1024, patch=16)
    width = vision.size("hidden_size")
    entry = Entry(
        products=(patch_product(vision, patch=16, patches=patches, bias=True),),
        table_elements=patches * width if vision.flag("use_abs_pos", True) else 0,
    )
    runs = [
        BlockRun(
            block=block,
            block_count=len(list(same)),
            part=RunPart.ENCODER,
            hidden_size=width,
            tokens_per_sequence=patches,
        )
        for block, same in groupby(_blocks(vision, isqrt(patches)))
    ]
    runs[0] = runs[0].model_copy(update={"entry": entry})
    runs[-1] = runs[-1].model_copy(update={"exit": _exit(vision, text, patches)})
    return joined(fields, text, *runs, image=f"{pixels} pixels", tied=True)


def _blocks(vision: Fields, side: int) -> list[Block]:
    """Return blocks that see a window, or all; biases by relative position are tables of theirs."""
    window = vision.size("window_size", 14, minimum=0)
    absent = "global_attn_indexes" not in vision
    seen = _GLOBAL if absent else vision.indices("global_attn_indexes")
    base = biased_block(vision.replaced({"intermediate_size": vision.size("mlp_dim", 3072)}))
    attention = base.attention.model_copy(
        update={"query_key_value_bias": vision.flag("qkv_bias", True)}
    )
    size = vision.size("hidden_size") // vision.size("num_attention_heads")
    tables = vision.flag("use_rel_pos", True)

    def block(cells: int, chunk: int | None) -> Block:
        beside = Entry(table_elements=2 * (2 * cells - 1) * size) if tables else None
        own = attention.model_copy(update={"chunk_tokens": chunk})
        return base.model_copy(update={"attention": own, "beside": beside})

    everything, windowed = block(side, None), block(window or side, window**2 or None)
    count = vision.size("num_hidden_layers", limit=LAYER_LIMIT)
    return [everything if index in seen else windowed for index in range(count)]


def _exit(vision: Fields, text: ModelGraph, patches: int) -> Exit:
    """Return the neck of two convolutions, two more that each merge four rows, and a product."""
    width, inner = vision.size("hidden_size"), vision.size("output_channels", 256)
    output = text.hidden_size
    half, tokens = max(patches // _STRIDED, 1), max(patches // _STRIDED**2, 1)
    products = (
        (width, inner, patches),
        (_KERNEL * inner, inner, patches),
        (_KERNEL * inner, 2 * inner, half),
        (_KERNEL * 2 * inner, output, tokens),
    )
    last = Product(inner_size=output, outer_size=output, bias=True, tokens_per_sequence=tokens)
    return Exit(
        products=(
            *(
                Product(inner_size=a, outer_size=b, tokens_per_sequence=rows)
                for a, b, rows in products
            ),
            last,
        ),
        norm_widths=(inner, inner),
        output_size=output,
        output_tokens_per_sequence=tokens,
    )
