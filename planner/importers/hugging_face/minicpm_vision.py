"""MiniCPM-V 4.6, 4.7 and OCR of Hugging Face: a SigLIP tower that merges its patches on the way.

Defaults are those of `configuration_minicpm*.py` of transformers 5.23. The tower takes images of
any size; one is assumed.
"""

from __future__ import annotations

from planner.errors import DocumentError
from planner.importers.fields import LAYER_LIMIT, Fields
from planner.importers.hugging_face.text import text_decoder
from planner.importers.hugging_face.towers import biased_block, joined, patch_count, side_pixels
from planner.schema.model import (
    BlockRun,
    Entry,
    Exit,
    ModelGraph,
    Product,
    RunPart,
)

_IMAGE_PIXELS = 448
_MERGED = 4  # patches of a square that become one row
_MERGES_LIMIT = 8
_VISION = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
}


def minicpm_vision(fields: Fields, name: str) -> ModelGraph:
    """Return a MiniCPM-V: after some blocks windows of four patches attend and become one row.

    With `downsample_mode` of 4x that is left out, and its weights are counted. Products merge again
    before the decoder.
    """
    text = text_decoder(fields, name, default="qwen3_5_text")
    vision = fields.section("vision_config", defaults=_VISION)
    ocr = fields.text("model_type") == "minicpm_ocr"
    _refuse_other_windows(vision)
    merges = (fields.text("downsample_mode") or ("4x" if ocr else "16x")) != "4x"
    count = vision.size("num_hidden_layers", limit=LAYER_LIMIT)
    first = min(fields.size("insert_layer_id", 6, minimum=0) + 1, count)
    times = fields.size("merger_times", 1, limit=_MERGES_LIMIT)
    cells = max(_IMAGE_PIXELS // (side_pixels(vision, "patch_size", 16) * 2 ** (times + 1)), 1)
    patches = (cells * 2 ** (times + 1)) ** 2
    left = patches // _MERGED if merges else patches
    spans = ((first, patches), (count - first, left)) if merges else ((count, patches),)
    runs = [
        BlockRun(
            block=biased_block(vision),
            block_count=blocks,
            part=RunPart.ENCODER,
            hidden_size=vision.size("hidden_size"),
            tokens_per_sequence=tokens,
        )
        for blocks, tokens in spans
        if blocks
    ]
    runs[0] = runs[0].model_copy(update={"entry": _entry(vision)})
    exit_ = _exit(vision, text, left, times=times)
    merger = _merger(vision, patches)
    if len(runs) > 1:
        runs[0] = runs[0].model_copy(update={"exit": merger})
    else:  # its weights are there, and where it merges after the last block it runs
        counted = exit_.products if not merges else (*merger.products, *exit_.products)
        unused = 0 if merges else _elements(merger)
        exit_ = exit_.model_copy(
            update={
                "products": counted,
                "norm_widths": (*exit_.norm_widths, *merger.norm_widths),
                "table_elements": unused,
            }
        )
    runs[-1] = runs[-1].model_copy(update={"exit": exit_})
    image = f"{cells * 2 ** (times + 1) * side_pixels(vision, 'patch_size', 16)} pixels"
    return joined(fields, text, *runs, image=image, tied=ocr)


def _entry(vision: Fields) -> Entry:
    side = side_pixels(vision, "patch_size", 16)
    _, learned = patch_count(vision, image=224, patch=16)
    width = vision.size("hidden_size")
    product = Product(
        inner_size=vision.size("num_channels", 3) * side**2, outer_size=width, bias=True
    )
    return Entry(products=(product,), table_elements=learned * width)


def _merger(vision: Fields, patches: int) -> Exit:
    """Return attention within squares of four patches, and the products that make one row of each.

    Scores of four with four patches are left out.
    """
    width, inner = vision.size("hidden_size"), _MERGED * vision.size("intermediate_size")
    own = Product(inner_size=width, outer_size=width, bias=True, tokens_per_sequence=patches)
    tokens = patches // _MERGED
    return Exit(
        products=(
            *(own,) * 4,
            Product(
                inner_size=_MERGED * width,
                outer_size=inner,
                bias=True,
                tokens_per_sequence=tokens,
            ),
            Product(inner_size=inner, outer_size=width, bias=True, tokens_per_sequence=tokens),
        ),
        norm_widths=(width, _MERGED * width),
        output_tokens_per_sequence=tokens,
    )


def _exit(vision: Fields, text: ModelGraph, rows: int, *, times: int) -> Exit:
    """Return the norm after the blocks, and `times` two products that each make one row of four."""
    width = vision.size("hidden_size")
    merged = _MERGED * width
    products = []
    for index in range(times):
        tokens = max(rows // _MERGED ** (index + 1), 1)
        output = text.hidden_size if index == times - 1 else width
        products += [
            Product(inner_size=merged, outer_size=outer, bias=True, tokens_per_sequence=tokens)
            for outer in (merged, output)
        ]
    return Exit(
        products=tuple(products),
        norm_widths=(width, *(merged,) * times),
        output_size=text.hidden_size,
        output_tokens_per_sequence=max(rows // _MERGED**times, 1),
    )


def _elements(merger: Exit) -> int:
    return sum((one.inner_size + one.bias) * one.outer_size for one in merger.products)


def _refuse_other_windows(vision: Fields) -> None:
    given = vision.counts("window_kernel_size")
    if given and given != (2, 2):
        raise DocumentError(
            "must be two by two patches",
            field=vision.spelling("window_kernel_size"),
            value=list(given[:4]),
            remedy="leave it out",
        )
