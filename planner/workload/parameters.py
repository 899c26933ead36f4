"""Parameters of a block, the embedding and the head, by how they shard."""

from __future__ import annotations

from planner.schema.model import (
    Attention,
    Block,
    CompressedAttention,
    CrossAttention,
    Entry,
    FeedForward,
    GroupedQueryAttention,
    LatentAttention,
    MixtureFeedForward,
    ModelGraph,
    NoAttention,
    NoFeedForward,
    Norm,
)
from planner.workload.compressed import (
    collapse_parameters,
    compressed_parameters,
    stream_parameters,
)
from planner.workload.flops import index_gemms, norm_count, sublayer_count
from planner.workload.layer import ParameterCounts
from planner.workload.mixers import mixer_parameters


def block_parameters(block: Block, hidden_size: int) -> ParameterCounts:
    """Return the parameters of one block: attentions, feed-forward and norms."""
    attentions = [_attention_parameters(block.attention, hidden_size)]
    if block.cross_attention is not None:
        attentions.append(_attention_parameters(block.cross_attention, hidden_size))
    if block.mixer is not None:
        attentions.append(mixer_parameters(block.mixer, hidden_size))
    feed_forward = _feed_forward_parameters(block.feed_forward, hidden_size)
    norms = norm_count(block) * norm_parameters(block.norm, hidden_size)
    beside = stream_parameters(block, hidden_size, sublayer_count(block))
    beside += 2 * hidden_size * (block.layer_input_size or 0) + _end_parameters(block.beside)
    return ParameterCounts(
        sharded=sum(part.sharded for part in attentions)
        + feed_forward.sharded
        + block.second_set_elements,
        replicated=sum(part.replicated for part in attentions)
        + feed_forward.replicated
        + norms
        + beside,
        expert=feed_forward.expert,
    )


def embedding_parameters(graph: ModelGraph) -> ParameterCounts:
    """Return the parameters of the token embedding, of learned positions, entries and exits."""
    ends = [end for run in graph.runs for end in (run.entry, run.exit) if end is not None]
    return ParameterCounts(
        sharded=graph.vocabulary_size * (graph.embedding_size or graph.hidden_size),
        replicated=graph.learned_position_count * graph.hidden_size
        + sum(_end_parameters(end) for end in ends),
    )


def _end_parameters(end: Entry | None) -> int:
    """Return the parameters of an entry or exit; nobody splits its products."""
    if end is None:
        return 0
    products = sum(
        (product.inner_size + product.bias) * product.outer_size for product in end.products
    )
    norms = sum(norm_parameters(end.norm, width) for width in end.norm_widths)
    return products + norms + end.table_elements


def head_parameters(graph: ModelGraph) -> ParameterCounts:
    """Return the parameters of the final norm and of the LM head, none of it if tied."""
    own = 0 if graph.tied_embeddings else graph.logit_count * graph.head_input_size
    bias = graph.logit_count if graph.head_bias else 0
    return ParameterCounts(
        sharded=own + bias,
        replicated=norm_parameters(graph.final_norm, graph.hidden_size)
        + _end_parameters(graph.before_head)
        + collapse_parameters(graph.runs[-1].block, graph.hidden_size),
    )


def norm_parameters(norm: Norm | None, width: int) -> int:
    """Return the parameters of one normalisation over `width` elements, 0 where there is none."""
    if norm is None:
        return 0
    return {Norm.LAYER: 2, Norm.WEIGHTLESS: 0}.get(norm, 1) * width


def _attention_parameters(attention: Attention, hidden_size: int) -> ParameterCounts:
    if isinstance(attention, LatentAttention):
        return _latent_parameters(attention, hidden_size)
    if isinstance(attention, CompressedAttention):
        return compressed_parameters(attention, hidden_size)
    if isinstance(attention, CrossAttention):
        return _cross_parameters(attention, hidden_size)
    if isinstance(attention, NoAttention):
        return ParameterCounts(sharded=0, replicated=0)
    return _grouped_query_parameters(attention, hidden_size)


def _grouped_query_parameters(
    attention: GroupedQueryAttention, hidden_size: int
) -> ParameterCounts:
    query_width = attention.head_count * attention.head_size
    output_width = attention.head_count * attention.value_size
    own_keys = not attention.shares_keys
    sizes = attention.head_size + attention.value_size
    key_value_width = attention.key_value_head_count * sizes * own_keys
    sharded = hidden_size * (query_width + key_value_width) + output_width * hidden_size
    if attention.values_are_keys:
        key_value_width //= 2
        sharded -= hidden_size * key_value_width
    if attention.output_gate:
        sharded += (hidden_size + attention.query_key_value_bias) * query_width
    if attention.query_key_value_bias:
        sharded += query_width + key_value_width // (1 if attention.key_bias else 2)
    if attention.sink:
        sharded += attention.head_count
    replicated = hidden_size if attention.output_bias else 0
    if attention.query_key_norm and attention.query_key_norm_weight:
        key_width = attention.key_value_head_count * attention.head_size * own_keys
        spanned = query_width + key_width
        spans = attention.query_key_norm_spans_heads
        replicated += spanned if spans else (1 + own_keys) * attention.head_size
    return ParameterCounts(sharded=sharded, replicated=replicated)


def _cross_parameters(attention: CrossAttention, hidden_size: int) -> ParameterCounts:
    query_width = attention.head_count * attention.head_size
    key_value_width = 2 * attention.key_value_head_count * attention.head_size
    sharded = 2 * hidden_size * query_width + attention.source_width * key_value_width
    if attention.query_key_value_bias:
        sharded += query_width + key_value_width // (1 if attention.key_bias else 2)
    replicated = hidden_size if attention.output_bias else 0
    if attention.query_key_norm:
        replicated += 2 * attention.head_size
    return ParameterCounts(sharded=sharded, replicated=replicated)


def _latent_parameters(attention: LatentAttention, hidden_size: int) -> ParameterCounts:
    """Return MLA's parameters: the down-projections and their norms are whole on every rank."""
    key_size = attention.no_position_head_size + attention.rotary_head_size
    query_width = attention.head_count * key_size
    expanded = attention.head_count * (attention.no_position_head_size + attention.value_head_size)
    sharded = attention.key_value_rank * expanded
    sharded += attention.head_count * attention.value_head_size * hidden_size
    compressed = attention.key_value_rank + attention.rotary_head_size
    replicated = hidden_size * compressed + attention.key_value_rank
    if attention.query_rank is None:
        sharded += hidden_size * query_width
    else:
        replicated += hidden_size * attention.query_rank + attention.query_rank
        sharded += attention.query_rank * query_width
    if attention.bias:
        replicated += compressed + hidden_size + (attention.query_rank or 0)
    index = index_gemms(attention, hidden_size)
    if attention.index is not None and index:
        replicated += sum(gemm.inner_size * gemm.outer_size for gemm in index)
        replicated += 2 * attention.index.head_size  # its keys' norm has a bias
    return ParameterCounts(sharded=sharded, replicated=replicated)


def _feed_forward_parameters(feed_forward: FeedForward, hidden_size: int) -> ParameterCounts:
    if isinstance(feed_forward, NoFeedForward):
        return ParameterCounts(sharded=0, replicated=0)
    matrices = 3 if feed_forward.gated else 2
    if isinstance(feed_forward, MixtureFeedForward):
        expert = matrices * hidden_size * feed_forward.expert_ffn_size
        if feed_forward.expert_bias:
            expert += (matrices - 1) * feed_forward.expert_ffn_size + hidden_size
        return ParameterCounts(
            sharded=matrices * hidden_size * feed_forward.shared_ffn_size,
            replicated=(hidden_size + feed_forward.router_bias) * feed_forward.expert_count
            + feed_forward.scale_elements
            + (hidden_size if feed_forward.shared_gate else 0),
            expert=feed_forward.expert_count * expert,
        )
    ffn_size = feed_forward.ffn_size
    bias = feed_forward.bias
    return ParameterCounts(
        sharded=matrices * hidden_size * ffn_size + ((matrices - 1) * ffn_size if bias else 0),
        replicated=(hidden_size if bias else 0) + feed_forward.scale_elements,
    )
