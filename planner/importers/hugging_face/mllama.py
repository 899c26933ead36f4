"""Llama 3.2 Vision of Hugging Face (mllama): some layers of the decoder read a tower, and no text.

Defaults are those of `configuration_mllama.py` of transformers 5.23. An image is assumed to fill
all of `max_num_tiles`.
"""

from __future__ import annotations

from itertools import pairwise

from planner.importers.fields import LAYER_LIMIT, Fields, require_at_most, require_divides
from planner.importers.hugging_face.attention import grouped_query, layer_count
from planner.importers.hugging_face.decoder import rotary_decoder, runs
from planner.schema.model import (
    Block,
    BlockRun,
    CrossAttention,
    DenseFeedForward,
    Entry,
    Exit,
    GroupedQueryAttention,
    ModelGraph,
    Norm,
    Product,
    RunPart,
)

_READING_LAYERS = frozenset({3, 8, 13, 18, 23, 28, 33, 38})
_KEPT_LAYERS = frozenset({3, 7, 15, 23, 30})
_ASPECT_RATIO_COUNT = 8  # ways to lay out at most four tiles
_TILE_TOKENS_MULTIPLE = 8
_EXTRA_EMBEDDINGS = 8
_SIDE_LIMIT = 2**12
_TILE_LIMIT = 64


def mllama(fields: Fields, name: str) -> ModelGraph:
    """Return an mllama; its gates, a number each, are counted with the tables."""
    vision = fields.section("vision_config")
    text = fields.section("text_config", defaults={"model_type": "mllama"})
    side = vision.size("image_size", 448, limit=_SIDE_LIMIT)
    patch = vision.size("patch_size", 14, limit=_SIDE_LIMIT)
    require_at_most(
        vision.spelling("patch_size"), patch, limit_name=vision.spelling("image_size"), limit=side
    )
    tokens = (side // patch) ** 2 + 1
    tiles = vision.size("max_num_tiles", 4, limit=_TILE_LIMIT)
    plain = rotary_decoder(text, name, [_own_block(text)] * layer_count(text), positions=131_072)
    tower = _tower(vision, plain.hidden_size, tile_tokens=tokens, tiles=tiles)
    said = f"one image of {tiles} tiles of {side} pixels a sequence was assumed"
    return ModelGraph(
        **{
            **dict(plain),
            "tied_embeddings": fields.flag("tie_word_embeddings", plain.tied_embeddings),
            "runs": (*tower, *_decoder_runs(text, source_tokens=tiles * tokens)),
            "assumptions": (said,),
        }
    )


def _own_block(fields: Fields) -> Block:
    return Block(
        attention=grouped_query(fields, key_value_heads=8),
        feed_forward=DenseFeedForward(ffn_size=fields.size("intermediate_size")),
    )


def _decoder_runs(fields: Fields, *, source_tokens: int) -> tuple[BlockRun, ...]:
    """Return the decoder's runs: those of `cross_attention_layers` attend to the tower alone."""
    own = _own_block(fields)
    attention = grouped_query(fields, key_value_heads=8)
    cross = CrossAttention(
        head_count=attention.head_count,
        key_value_head_count=attention.key_value_head_count,
        head_size=attention.head_size,
        source_width=fields.size("hidden_size"),
        source_tokens_per_sequence=source_tokens,
        query_key_norm=True,
    )
    absent = "cross_attention_layers" not in fields
    reading = _READING_LAYERS if absent else fields.indices("cross_attention_layers")
    flags = [index in reading for index in range(layer_count(fields))]
    reader = own.model_copy(update={"attention": cross})
    first, *rest = runs([reader if reads else own for reads in flags])
    tables = _EXTRA_EMBEDDINGS * fields.size("hidden_size") + 2 * sum(flags)
    return (first.model_copy(update={"entry": Entry(table_elements=tables)}), *rest)


def _tower(
    vision: Fields, output_size: int, *, tile_tokens: int, tiles: int
) -> tuple[BlockRun, ...]:
    """Return the tower, cut where it begins to carry a layer's output to its end.

    The projection reads the last row beside those of `intermediate_layers_indices`. All tiles of an
    image, each padded, see one another.
    """
    width = vision.size("hidden_size", 1280)
    count = vision.size("num_hidden_layers", 32, limit=LAYER_LIMIT)
    total = count + vision.size("num_global_layers", 8, minimum=0, limit=LAYER_LIMIT)
    absent = "intermediate_layers_indices" not in vision
    kept = _KEPT_LAYERS if absent else vision.indices("intermediate_layers_indices")
    cuts = sorted({0, *(index + 1 for index in kept if index + 1 < total), total})
    padded = -(-tile_tokens // _TILE_TOKENS_MULTIPLE) * _TILE_TOKENS_MULTIPLE
    segments = [
        BlockRun(
            block=_tower_block(vision, width),
            block_count=end - start,
            part=RunPart.ENCODER,
            hidden_size=width,
            tokens_per_sequence=tiles * padded,
            carried_width=carried * width,
        )
        for carried, (start, end) in enumerate(pairwise(cuts))
    ]
    entry = _entry(vision, width, tile_tokens=tile_tokens, tiles=tiles)
    segments[0] = segments[0].model_copy(update={"entry": entry})
    segments[-1] = segments[-1].model_copy(
        update={
            "exit": Exit(
                products=(
                    Product(
                        inner_size=vision.size("vision_output_dim", 7680),
                        outer_size=output_size,
                        bias=True,
                        tokens_per_sequence=tiles * tile_tokens,
                    ),
                ),
                norm_widths=(width,),
                table_elements=2 * (total - count),
                output_size=output_size,
                output_tokens_per_sequence=tiles * tile_tokens,
            )
        }
    )
    return tuple(segments)


def _tower_block(vision: Fields, width: int) -> Block:
    heads = vision.size("attention_heads", 16)
    require_divides(vision.spelling("attention_heads"), heads, "hidden_size", width)
    return Block(
        attention=GroupedQueryAttention(
            head_count=heads,
            key_value_head_count=heads,
            head_size=width // heads,
            rotary=False,
            causal=False,
        ),
        feed_forward=DenseFeedForward(
            ffn_size=vision.size("intermediate_size", 5120), gated=False, bias=True
        ),
        norm=Norm.LAYER,
    )


def _entry(vision: Fields, width: int, *, tile_tokens: int, tiles: int) -> Entry:
    """Return the patch embedding, the class token, and positions of patches and tiles.

    There is a table of tiles before the blocks and one after, and one of all of a layout's
    positions, each for every layout and for none, and each with a gate.
    """
    layouts = _ASPECT_RATIO_COUNT
    if "supported_aspect_ratios" in vision:
        layouts = max(vision.length("supported_aspect_ratios"), 1)
    per_layout = tiles * tile_tokens * width + 2 * tiles * width
    patch = vision.size("patch_size", 14, limit=_SIDE_LIMIT)
    return Entry(
        products=(
            Product(
                inner_size=vision.size("num_channels", 3) * patch * patch,
                outer_size=width,
                tokens_per_sequence=tiles * (tile_tokens - 1),
            ),
        ),
        norm_widths=(width,),
        table_elements=width + tile_tokens * width + (layouts + 1) * per_layout + 3,
    )
