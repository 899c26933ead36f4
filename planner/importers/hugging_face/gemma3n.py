"""Gemma-3n of Hugging Face: rows of residual that predict one another, inputs of layers' own.

Defaults are those of `configuration_gemma3n.py` of transformers 5.23.
"""

from __future__ import annotations

from planner.errors import DocumentError
from planner.importers.fields import Fields
from planner.importers.hugging_face.attention import grouped_query, layer_count, periodic_windows
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.schema.model import (
    Block,
    DenseFeedForward,
    Entry,
    GroupedQueryAttention,
    ModelGraph,
    Norm,
    NormPlacement,
    Product,
)

_PERIOD = 5  # four layers slide, the fifth sees all
_ROW_LIMIT = 64


def gemma3n_text(fields: Fields, name: str) -> ModelGraph:
    """Return the decoder: of some rows of residual a layer computes one and predicts the others.

    What predicts them, and a narrow way beside attention, are priced beside the parts; the other
    rows travel between stages, and that layers keep them for backward is left out.
    """
    count = layer_count(fields)
    rows = fields.size("altup_num_inputs", 4, limit=_ROW_LIMIT)
    shared = fields.size("num_kv_shared_layers", 15, minimum=0, limit=max(count - 1, 0))
    windows = periodic_windows(fields, window=512, period=_PERIOD)
    widths = _feed_forward_widths(fields, count)
    size = fields.size("hidden_size_per_layer_input", 256)
    attention = _attention(fields)
    blocks = [
        Block(
            attention=attention.model_copy(
                update={
                    "sliding_window_tokens": window,
                    "shares_keys": index >= count - shared,
                }
            ),
            feed_forward=DenseFeedForward(ffn_size=widths[index]),
            norm=Norm.RMS_FLOAT32,
            norm_placement=NormPlacement.BOTH,
            layer_input_size=size,
            beside=_beside(fields, rows),
        )
        for index, window in enumerate(windows)
    ]
    capped = fields.filled({"final_logit_softcapping": 30.0})
    graph = rotary_decoder(capped, name, blocks, positions=32768, tied=True)
    return _with_rows(fields, graph, rows=rows, shared=bool(shared), size=size)


def _attention(fields: Fields) -> GroupedQueryAttention:
    bias = fields.flag("attention_bias", False)
    return grouped_query(fields, key_value_heads=2, head_size=256).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias, "query_key_norm": True}
    )


def _beside(fields: Fields, rows: int) -> Entry:
    """Return what predicts and corrects rows of residual, and the narrow way beside attention."""
    width, rank = fields.size("hidden_size"), fields.size("laurel_rank", 64)
    ways = ((width, rows), (rows, rows**2), (rows, rows), (width, rank), (rank, width))
    return Entry(
        products=tuple(Product(inner_size=a, outer_size=b) for a, b in ways),
        norm=Norm.RMS,
        norm_widths=(width, width),
        table_elements=width,
    )


def _feed_forward_widths(fields: Fields, count: int) -> tuple[int, ...]:
    """Return the width of each layer's feed-forward, one for all or one for each.

    Raises:
        DocumentError: if another number of layers is listed, or one has none.
    """
    if not fields.is_list("intermediate_size"):
        return (fields.size("intermediate_size"),) * count
    widths = fields.counts("intermediate_size")
    if len(widths) != count or not all(widths):
        raise DocumentError(
            f"must be 1 or more for each of the {count} layers",
            field=fields.spelling("intermediate_size"),
            value=f"{len(widths)} entries",
            remedy="give one number per layer, or one for all",
        )
    return widths


def _with_rows(
    fields: Fields, graph: ModelGraph, *, rows: int, shared: bool, size: int
) -> ModelGraph:
    """Return the decoder with what makes its rows of residual, and one row of them at the end.

    The layers' own inputs come of a second embedding; both, the other rows, and keys and values
    that the last layers share travel along the pipeline.
    """
    width, inputs = graph.hidden_size, graph.block_count * size
    table = fields.size("vocab_size_per_layer_input", 262_144) * inputs
    across = (Product(inner_size=width, outer_size=width),) * (rows - 1)
    entry = Entry(
        products=(Product(inner_size=width, outer_size=inputs), *across),
        norm=Norm.RMS,
        norm_widths=(size,),
        table_elements=table,
    )
    attention = _attention(fields)
    keys = 2 * attention.key_value_head_count * attention.head_size
    kinds = {run.block.attention for run in graph.runs if not _shares(run.block)}
    carried = inputs + (rows - 1) * width + (keys * len(kinds) if shared else 0)
    runs = [run.model_copy(update={"carried_width": carried}) for run in graph.runs]
    runs[0] = runs[0].model_copy(update={"entry": entry})
    said = f"what layers keep of the {rows - 1} rows of residual that they predict is left out"
    return graph.model_copy(
        update={
            "runs": tuple(runs),
            "before_head": Entry(products=across) if across else None,
            "assumptions": (*graph.assumptions, said),
        }
    )


def _shares(block: Block) -> bool:
    return isinstance(block.attention, GroupedQueryAttention) and block.attention.shares_keys
