"""Qwen4's decoder of Hugging Face: rows of residual, picked keys, tables of runs of tokens.

Defaults are those of `configuration_qwen4_exp.py` of transformers 5.23.
"""

from __future__ import annotations

from planner.errors import DocumentError
from planner.importers.fields import POSITION_LIMIT, Fields, require_divides
from planner.importers.hugging_face.attention import grouped_query, layer_count, layer_kinds
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.importers.hugging_face.qwen_linear import delta_mixer, shared_mixture
from planner.schema.model import (
    Block,
    Entry,
    GroupedQueryAttention,
    ModelGraph,
    NoAttention,
    Norm,
    Product,
)

_LINEAR, _INDEXED, _FULL = "linear_attention", "indexed_attention", "full_attention"
_STREAM_LIMIT = 64
_HEAD_LIMIT = 4096
_TABLE_LIMIT = 2**31


def qwen4_exp_text(fields: Fields, name: str) -> ModelGraph:
    """Return a qwen4_exp_text: each part reads a mix of rows of residual, and adds to all of them.

    Keys that an index picks are counted as a window; its scores, and what layers keep of the other
    rows, are left out. Both are said.
    """
    count, width = layer_count(fields), fields.size("hidden_size")
    rows = fields.size("hc_count", 4, limit=_STREAM_LIMIT)
    kinds = _kinds(fields, count)
    mixes = _mixes(fields, rows * width)
    mixture = shared_mixture(fields, experts=512, chosen=10)
    tabled = sorted(set(fields.counts("ple_layer_ids")))
    mixer = delta_mixer(fields)
    attention, index = _indexed(fields) if _INDEXED in kinds else (NoAttention(), Entry())
    blocks = []
    for layer, kind in enumerate(kinds):
        beside = mixes if kind == _LINEAR else _together(mixes, index)
        if layer + 1 in tabled:
            beside = _together(beside, _runs_of_tokens(fields, rows, tabled.index(layer + 1)))
        blocks.append(
            Block(
                attention=attention if kind == _INDEXED else NoAttention(),
                mixer=mixer if kind == _LINEAR else None,
                feed_forward=mixture,
                norm=Norm.WEIGHTLESS,  # the rows of residual are normed, in what mixes them
                beside=beside,
            )
        )
    graph = rotary_decoder(fields, name, blocks, positions=32768)
    runs = [run.model_copy(update={"carried_width": (rows - 1) * width}) for run in graph.runs]
    down, up, _ = mixes.products[:3]
    last = Entry(products=(down, up), norm=Norm.RMS, norm_widths=(rows * width,))
    runs[0] = runs[0].model_copy(update={"entry": last})  # what mixes them after the last block
    said = [f"what layers keep of {rows - 1} further rows of residual is left out"]
    if _INDEXED in kinds:
        said.append("keys that an index picks are counted as a window, its scores are left out")
    return graph.model_copy(update={"runs": tuple(runs), "assumptions": tuple(said)})


def _kinds(fields: Fields, count: int) -> list[str]:
    period = fields.size("full_attention_interval", 4)
    default = [_LINEAR if (index + 1) % period else _INDEXED for index in range(count)]
    kinds = layer_kinds(fields, default, known=(_LINEAR, _INDEXED, _FULL))
    return [_INDEXED if kind == _FULL else kind for kind in kinds]


def _mixes(fields: Fields, rows_width: int) -> Entry:
    """Return what mixes the rows for a block's two parts, and weighs each part for the rows."""
    rank = fields.size("hc_lowrank", 320)
    one = (
        Product(inner_size=rows_width, outer_size=rank),
        Product(inner_size=rank, outer_size=rows_width),
        Product(inner_size=rows_width, outer_size=fields.size("hc_count", 4)),
    )
    return Entry(products=one * 2, norm=Norm.RMS, norm_widths=(rows_width,) * 2)


def _indexed(fields: Fields) -> tuple[GroupedQueryAttention, Entry]:
    """Return gated attention to as many keys as its index picks, and the index."""
    bias = fields.flag("attention_bias", False)
    attention = grouped_query(fields, key_value_heads=2, head_size=256).model_copy(
        update={
            "query_key_value_bias": bias,
            "output_bias": bias,
            "query_key_norm": True,
            "output_gate": True,
            "sliding_window_tokens": fields.size("indexer_budget", limit=POSITION_LIMIT),
        }
    )
    size = fields.size("indexer_head_dim")
    heads = fields.size("indexer_n_heads") + fields.size("indexer_kv_heads")
    product = Product(inner_size=fields.size("hidden_size"), outer_size=heads * size)
    return attention, Entry(products=(product,), norm=Norm.RMS, norm_widths=(size, size))


def _runs_of_tokens(fields: Fields, rows: int, place: int) -> Entry:
    """Return what one of the layers that look up runs of tokens has: a table, and ways to all rows.

    Each head of each length of run has a table of its own, as large as a prime that no other has.
    """
    width = fields.size("hidden_size")
    whole, inner = rows * width, fields.size("ple_embed_dim", width)
    heads = (fields.size("ngram_size", 3, minimum=2) - 1) * fields.size("heads_per_ngram", 8)
    if heads > _HEAD_LIMIT or (place + 1) * heads > _HEAD_LIMIT:
        raise DocumentError(
            f"gives more than {_HEAD_LIMIT} tables",
            field=fields.spelling("heads_per_ngram"),
            value=heads,
            remedy="check the number of digits",
        )
    require_divides(fields.spelling("heads_per_ngram"), heads, "ple_embed_dim", inner)
    base = fields.size("ngram_vocab_size_base", 20_000_000, minimum=2, limit=_TABLE_LIMIT)
    unit = fields.size("make_ngram_vocab_size_divisible_by", 128)
    total = sum(_primes_from(base, (place + 1) * heads)[place * heads :])
    table = -(-total // unit) * unit * (inner // heads)
    taps = fields.size("ple_conv_kernel_size", 4)
    return Entry(
        products=(
            Product(inner_size=inner, outer_size=whole),
            Product(inner_size=inner, outer_size=width),
        ),
        norm=Norm.RMS,
        norm_widths=(whole,) * 3,
        table_elements=table + taps * whole,
    )


def _primes_from(base: int, count: int) -> list[int]:
    """Return the first `count` primes from `base` on."""
    primes: list[int] = []
    number = base
    while len(primes) < count:
        if all(number % divisor for divisor in range(2, int(number**0.5) + 1)):
            primes.append(number)
        number += 1
    return primes


def _together(first: Entry, second: Entry) -> Entry:
    return first.model_copy(
        update={
            "products": (*first.products, *second.products),
            "norm_widths": (*first.norm_widths, *second.norm_widths),
            "table_elements": first.table_elements + second.table_elements,
        }
    )
