"""Towers of learned queries of Hugging Face: blip-2, instructblip, idefics2 and aria.

A tower sees the image; a few learned rows attend to what it puts out, and go to the decoder. Each
reader states the defaults of its configuration class (`configuration_<type>.py` of transformers
5.23). A sequence is assumed to have one image.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from planner.importers.fields import LAYER_LIMIT, Fields, require_divides
from planner.importers.hugging_face.attention import BIASED, layer_count, multi_head
from planner.importers.hugging_face.blip import blip_tower
from planner.importers.hugging_face.images import IDEFICS3_TOWER
from planner.importers.hugging_face.text import text_decoder
from planner.importers.hugging_face.towers import joined, siglip_tower
from planner.schema.model import (
    Block,
    BlockRun,
    CrossAttention,
    DenseFeedForward,
    Entry,
    Exit,
    ModelGraph,
    NoFeedForward,
    Norm,
    NormPlacement,
    Product,
    RunPart,
)

_VISION = {
    "hidden_size": 1408,
    "intermediate_size": 6144,
    "num_hidden_layers": 39,
    "num_attention_heads": 16,
}
_QUERIES = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
}
_IDEFICS2_VISION = {
    **_QUERIES,
    "image_size": 224,
    "patch_size": 32,
    "vision_use_head": False,
}


def blip_2(fields: Fields, name: str) -> ModelGraph:
    """Return a blip-2: every second block of the queries' tower attends to the image."""
    return _queried(fields, name, reads_text=False)


def instructblip(fields: Fields, name: str) -> ModelGraph:
    """Return an instructblip: the queries' tower could read the instruction too, which is left out.

    What it has for that is counted as parameters.
    """
    graph = _queried(fields, name, reads_text=True)
    said = "the instruction's tokens in the tower of queries are left out"
    return graph.model_copy(update={"assumptions": (*graph.assumptions, said)})


def _queried(fields: Fields, name: str, *, reads_text: bool) -> ModelGraph:
    text = text_decoder(fields, name, default="opt")
    vision = fields.section("vision_config", defaults=_VISION)
    tower = blip_tower(vision, bias=vision.flag("qkv_bias", True))
    section = fields.section("qformer_config", defaults=_QUERIES)
    width, count = section.size("hidden_size"), fields.size("num_query_tokens", 32)
    exit_ = Exit(
        products=(
            Product(
                inner_size=width,
                outer_size=text.hidden_size,
                bias=True,
                tokens_per_sequence=count,
            ),
        ),
        output_size=text.hidden_size,
        output_tokens_per_sequence=count,
    )
    rows = count
    if reads_text:
        rows += section.size("vocab_size", 30522) + section.size("max_position_embeddings", 512)
    entry = Entry(norm_widths=(width,), table_elements=rows * width)
    blocks = _query_blocks(
        section, source=(tower.token_count, tower.hidden_size), reads_text=reads_text
    )
    queries = _tower(blocks, entry, exit_, width=width, tokens=count)
    seen = tower.run(Exit(norm_widths=(tower.hidden_size,)))
    image = f"{tower.image_pixels} pixels"
    graph = joined(fields, text, seen, *queries, image=image)
    return graph.model_copy(update={"tied_embeddings": text.tied_embeddings})


def _query_blocks(section: Fields, *, source: tuple[int, int], reads_text: bool) -> list[Block]:
    """Return blocks of a bert, some of which attend to `source`, its tokens and width."""
    attention = multi_head(section).model_copy(update={**BIASED, "causal": False})
    width, ffn_size = section.size("hidden_size"), section.size("intermediate_size")
    cross = CrossAttention(
        head_count=attention.head_count,
        key_value_head_count=attention.head_count,
        head_size=attention.head_size,
        source_width=source[1],
        source_tokens_per_sequence=source[0],
        query_key_value_bias=True,
        output_bias=True,
    )
    feed_forward = DenseFeedForward(ffn_size=ffn_size, gated=False, bias=True)
    texts = (width + 1) * ffn_size + (ffn_size + 1) * width + 2 * width
    plain = Block(
        attention=attention,
        feed_forward=feed_forward,
        norm=Norm.LAYER,
        norm_placement=NormPlacement.AFTER,
        beside=Entry(table_elements=texts) if reads_text else None,
    )
    crossed = plain.model_copy(update={"cross_attention": cross})
    step = section.size("cross_attention_frequency", 2)
    return [plain if index % step else crossed for index in range(layer_count(section))]


def idefics2(fields: Fields, name: str) -> ModelGraph:
    """Return an idefics2: a gated way to the decoder's width, then a perceiver of 64 rows."""
    text = text_decoder(fields, name, default="mistral")
    tower = siglip_tower(fields.section("vision_config", defaults=_IDEFICS2_VISION))
    given = fields.is_mapping("perceiver_config")
    section = fields.section("perceiver_config") if given else Fields({})
    count, width = section.size("resampler_n_latents", 64), text.hidden_size
    inner = fields.section("text_config").size("intermediate_size", 14336)
    patches, source = tower.patch_count, tower.patch_count + count
    read, back = (
        Product(inner_size=a, outer_size=b, tokens_per_sequence=patches)
        for a, b in ((tower.hidden_size, inner), (inner, width))
    )
    seen = Exit(
        products=(read, read, back),
        norm_widths=(tower.hidden_size,),
        output_size=width,
        output_tokens_per_sequence=source,  # its class reads the latents beside the patches
    )
    heads, keys = section.size("resampler_n_heads", 16), section.size("num_key_value_heads", 4)
    require_divides("perceiver_config.num_key_value_heads", keys, "resampler_n_heads", heads)
    block = Block(
        attention=CrossAttention(
            head_count=heads,
            key_value_head_count=keys,
            head_size=section.size("resampler_head_dim", 96),
            source_width=width,
            source_tokens_per_sequence=source,
        ),
        feed_forward=DenseFeedForward(ffn_size=4 * width),
        beside=Entry(norm=Norm.RMS, norm_widths=(width,)),  # of what is attended to
    )
    depth = section.size("resampler_depth", 3, limit=LAYER_LIMIT)
    queries = _tower(
        [block] * depth,
        Entry(table_elements=count * width),
        Exit(norm=Norm.RMS, norm_widths=(width,)),
        width=width,
        tokens=count,
    )
    image = f"{tower.image_pixels} pixels"
    return joined(fields, text, tower.run(seen), *queries, image=image)


def aria(fields: Fields, name: str) -> ModelGraph:
    """Return an aria: as many learned rows as its table has for an image attend to the patches.

    Queries, keys and values each pass two products.
    """
    text = text_decoder(fields, name, default="aria_text")
    vision = fields.section("vision_config", defaults=IDEFICS3_TOWER)
    tower = siglip_tower(vision)
    width, patches = tower.hidden_size, tower.patch_count
    most, count = _query_counts(fields, patches)
    again = Product(inner_size=width, outer_size=width, tokens_per_sequence=patches)
    seen = Exit(products=(again, again), norm_widths=(width, width))
    heads = multi_head(vision)
    block = Block(
        attention=CrossAttention(
            head_count=heads.head_count,
            key_value_head_count=heads.head_count,
            head_size=heads.head_size,
            source_width=width,
            source_tokens_per_sequence=patches,
            query_key_value_bias=True,
            output_bias=True,
        ),
        feed_forward=NoFeedForward(),
        norm=Norm.LAYER,
        beside=Entry(
            products=(
                Product(inner_size=width, outer_size=width),
                Product(inner_size=width, outer_size=width, bias=True),
            )
        ),
    )
    output = text.hidden_size
    exit_ = Exit(
        products=tuple(
            Product(inner_size=inner, outer_size=output, tokens_per_sequence=count)
            for inner in (width, output)
        ),
        norm_widths=(width,),
        output_size=output,
        output_tokens_per_sequence=count,
    )
    entry = Entry(table_elements=most * width)
    queries = _tower([block], entry, exit_, width=width, tokens=count)
    image = f"{tower.image_pixels} pixels"
    return joined(fields, text, tower.run(seen), *queries, image=image)


def _query_counts(fields: Fields, patches: int) -> tuple[int, int]:
    """Return the most rows that the table names, and those for `patches`: else the most."""
    table = {"1225": 128, "4900": 256}
    if fields.is_mapping("projector_patch_to_query_dict"):
        section = fields.section("projector_patch_to_query_dict")
        given = Fields({str(key): value for key, value in section.values().items()})
        table = {key: given.size(key) for key in given.names()}
    most = max(table.values(), default=256)
    return most, table.get(str(patches), most)


def _tower(
    blocks: Sequence[Block], entry: Entry, exit_: Exit, *, width: int, tokens: int
) -> tuple[BlockRun, ...]:
    """Return a tower of `tokens` learned rows, in as many runs as its blocks alternate."""
    runs = [
        BlockRun(
            block=block,
            block_count=len(list(same)),
            part=RunPart.ENCODER,
            hidden_size=width,
            tokens_per_sequence=tokens,
        )
        for block, same in groupby(blocks)
    ]
    runs[0] = runs[0].model_copy(update={"entry": entry})
    runs[-1] = runs[-1].model_copy(update={"exit": exit_})
    return tuple(runs)
