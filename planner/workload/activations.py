"""Activations: what forward keeps for backward, per token, under each checkpointing choice.

Counted as autograd keeps them in 16 bits, with flash attention and norms in plain torch. *none*
keeps all that backward reads; *selective* the block's input, the attention's output and what
`planner.workload.selection` says; *full* the block's input alone.

For Llama-3-8B this is 200,832 bytes per token and block where 201,097 were measured on fake
tensors. Copies that fused kernels do not keep are counted apart. So are dropout's masks, one after
each sublayer: with them it is 34 s b h for GPT-2, as Korthikanti et al. 2022 have it.

Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.1; counts checked against the tensors
that autograd saves in transformers' layers (`tests/golden/test_activation_elements.py`).
"""

from __future__ import annotations

from dataclasses import fields

from planner.schema.model import (
    Attention,
    Block,
    CompressedAttention,
    CrossAttention,
    DenseFeedForward,
    Entry,
    FeedForward,
    GroupedQueryAttention,
    LatentAttention,
    MixtureFeedForward,
    NoAttention,
    NoFeedForward,
    Norm,
    NormPlacement,
)
from planner.workload.activation_steps import step_copies
from planner.workload.again import own_norm_count, undivided
from planner.workload.compressed import compressed_activations, stream_activations
from planner.workload.flops import (
    attention_core,
    block_gemms,
    read_row_count,
    source_gemms,
    sublayer_count,
)
from planner.workload.layer import ActivationElements, LayerActivations
from planner.workload.mixers import mixer_activations
from planner.workload.selection import kept_products

# Elements that a norm keeps beside its input and output, for each of its input: RMSNorm in plain
# torch widens the row (an fp32 copy, two elements, in place of the input) and keeps the normalised
# row (two where it is still wide); LayerNorm is one kernel and keeps its input alone, which OLMo
# widens first.
_COPIED_BY_NORM = {Norm.RMS: 2.0, Norm.RMS_FLOAT32: 3.0, Norm.LAYER: 0.0, Norm.WEIGHTLESS: 1.0}
_KINDS = tuple(field.name for field in fields(ActivationElements))
_LAYER_INPUT_ROWS = 4  # the gate, it activated, the row of the block's own, their product
_TOKEN_INDEX_WORDS = 2.0  # an int64, in words of 4 bytes
_ROUTING_WORDS_PER_CHOICE = 10.0  # weight, its normed copy, and int64 index, order, inverse, expert


def block_activations(
    block: Block, hidden_size: int, *, run_again: frozenset[str] = frozenset()
) -> LayerActivations:
    """Return the elements per token that one block keeps under each choice.

    `run_again` names parts, as `part_activations` does, that keep nothing under any choice.
    """
    parts = part_activations(block, hidden_size)
    spared = _sum(*(parts[name] for name in undivided(run_again) if name in parts))
    block_input = _elements(replicated=block.residual_stream_count * hidden_size)
    cross = block.cross_attention
    attentions = (block.attention,) if cross is None else (block.attention, cross)
    return LayerActivations(
        none=_less(
            _sum(
                *(_norms(block, hidden_size) for _ in range(read_row_count(block))),
                _elements(masks=sublayer_count(block) * hidden_size),
                *(_attention(attention, _head_norm(block)) for attention in attentions),
                _feed_forward(block.feed_forward, hidden_size),
                *(() if block.mixer is None else (mixer_activations(block.mixer),)),
                stream_activations(block, hidden_size, sublayer_count(block)),
                _layer_input(block, hidden_size),
                _beside(block),
            ),
            spared,
        ),
        selective=_sum(
            block_input,
            *(_attention_output(attention) for attention in attentions),
            kept_products(block_gemms(block, hidden_size)),
            _elements(reduced=sublayer_count(block) * hidden_size),
        ),
        full=block_input,
    )


def part_activations(block: Block, hidden_size: int) -> dict[str, ActivationElements]:
    """Return what parts of a block keep that Megatron can run again one by one, by its names.

    `core_attn` keeps what attention is made of, and its output as what a product reads, but not
    the sums of its scores. `mlp` is that of dense layers, and `moe` that of mixtures, whose experts
    `moe_act` and `shared_experts` are parts of. `layernorm` is of norms that no product has inside:
    that of latent attention, and that which router and experts read; the norm inside a dense
    `mlp` is run again with it.

    Source: Megatron-LM `megatron/training/arguments.py`, `--recompute-modules`;
    `core/transformer/{attention,transformer_layer}.py`; `core/transformer/moe/moe_layer.py`;
    `core/models/gpt/gpt_layer_specs.py` (`input_layernorm`, `pre_mlp_layernorm`).
    """
    feed_forward = block.feed_forward
    parts = {"layernorm": _elements(gathered=own_norm_count(block) * hidden_size)}
    if not isinstance(block.attention, NoAttention):
        core = attention_core(block.attention)
        parts["core_attn"] = _elements(float32=core.head_count)
    if isinstance(feed_forward, MixtureFeedForward):
        routed = feed_forward.experts_per_token * feed_forward.expert_ffn_size
        parts["moe"] = _feed_forward(feed_forward, hidden_size)
        parts["moe_act"] = _inside(feed_forward, routed, expanded=False)
        parts["shared_experts"] = _inside(feed_forward, feed_forward.shared_ffn_size)
    elif not isinstance(feed_forward, NoFeedForward):
        row = _elements(gathered=hidden_size)
        parts["mlp"] = _sum(_feed_forward(feed_forward, hidden_size), row)
    if isinstance(block.attention, LatentAttention):
        parts["mla_up_proj"] = _expanded(block.attention)
    return parts


def source_activations(cross: CrossAttention) -> LayerActivations:
    """Return the elements per source token that a cross-attention keeps: its keys and values.

    What it makes them of is the tower's output, which its stage holds once for all blocks.
    """
    width = cross.key_value_head_count * cross.head_size
    normed = width if cross.query_key_norm else 0
    heads = cross.key_value_head_count if cross.query_key_norm else 0
    return LayerActivations(
        none=_elements(
            sharded=2 * width + normed,
            row_copies=_COPIED_BY_NORM[Norm.RMS] * normed,
            float32=heads,
        ),
        selective=kept_products(source_gemms(cross)),
        full=_elements(),
    )


def end_activations(end: Entry, index: int) -> LayerActivations:
    """Return what product `index` of an entry or exit keeps: its input, and before a next its sum.

    The sum is what the activation between two products reads.
    """
    product = end.products[index]
    between = 0 if index == len(end.products) - 1 else product.outer_size
    kept = _elements(gathered=product.inner_size, replicated=between)
    return LayerActivations(none=kept, selective=kept, full=kept)


def end_norm_activations(end: Entry) -> LayerActivations:
    """Return what the norms of an entry or exit keep; their output is counted where it is read."""
    kept = _normed(end.norm, sum(end.norm_widths))
    return LayerActivations(none=kept, selective=kept, full=kept)


def embedding_activations() -> LayerActivations:
    """Return what the embedding keeps: the token's index."""
    kept = _elements(float32=_TOKEN_INDEX_WORDS)
    return LayerActivations(none=kept, selective=kept, full=kept)


def head_activations(hidden_size: int, norm: Norm | None) -> LayerActivations:
    """Return what the final norm keeps, and the head's input; logits are counted apart."""
    kept = _elements(gathered=hidden_size) if norm is None else _norm(norm, hidden_size)
    return LayerActivations(none=kept, selective=kept, full=kept)


def _norms(block: Block, width: int) -> ActivationElements:
    """Return what the norms about one part of a block keep, and the row that it reads whole.

    The output of a norm after it goes into the residual sum, which keeps nothing.
    """
    if block.norm_placement in {NormPlacement.BEFORE, NormPlacement.SHARED}:
        return _norm(block.norm, width)
    after = _normed(block.norm, width)
    if block.norm_placement is NormPlacement.AFTER:
        return _sum(_elements(gathered=width), after)
    return _sum(_norm(block.norm, width), after)


def _norm(norm: Norm, width: int) -> ActivationElements:
    """Return what a norm keeps and its output, which column-split products read whole."""
    return _sum(_elements(gathered=width), _normed(norm, width))


def _normed(norm: Norm, width: int) -> ActivationElements:
    """Return what a norm keeps beside its output."""
    return _elements(replicated=width, norm_copies=_COPIED_BY_NORM[norm] * width)


def _head_norm(block: Block) -> Norm:
    """Return the norm of queries and keys, an rms of the block's kind."""
    return Norm.RMS if block.norm is Norm.LAYER else block.norm


def _attention(attention: Attention, head_norm: Norm) -> ActivationElements:
    if isinstance(attention, LatentAttention):
        return _latent(attention)
    if isinstance(attention, NoAttention):
        return _elements()
    if isinstance(attention, CompressedAttention):
        return _sum(compressed_activations(attention), _attention_output(attention))
    core = attention_core(attention)
    own, key_values = core.head_count * core.key_head_size, 0
    normed_heads = normed_rows = attention.head_count
    if isinstance(attention, GroupedQueryAttention) and not attention.shares_keys:
        own += core.key_value_width
        normed_keys = attention.key_value_head_count * attention.head_size
        key_values = core.key_value_width + attention.query_key_norm * normed_keys
        normed_heads += attention.key_value_head_count
        normed_rows = 2 if attention.query_key_norm_spans_heads else normed_heads
    if isinstance(attention, GroupedQueryAttention) and attention.output_gate:
        own += 2 * core.head_count * core.value_head_size  # the gate, and the output gated
    kept = _sum(_elements(sharded=own, key_values=key_values), _attention_output(attention))
    if not attention.query_key_norm:
        return kept
    return _sum(
        kept,
        _elements(
            sharded=normed_heads * attention.head_size,
            row_copies=_COPIED_BY_NORM[head_norm] * normed_heads * attention.head_size,
            float32=normed_rows,
        ),
    )


def _layer_input(block: Block, hidden_size: int) -> ActivationElements:
    """Return what the part that a row of the block's own gates keeps, and the norm after it."""
    size = block.layer_input_size
    if size is None:
        return _elements()
    rows = _elements(replicated=hidden_size + _LAYER_INPUT_ROWS * size)
    return _sum(rows, _normed(block.norm, hidden_size))


def _beside(block: Block) -> ActivationElements:
    """Return what products and norms beside the block's parts keep: the rows that they read."""
    beside = block.beside
    if beside is None:
        return _elements()
    read = sum(product.inner_size + product.outer_size for product in beside.products)
    return _sum(_elements(gathered=read), _normed(beside.norm, sum(beside.norm_widths)))


def _latent(attention: LatentAttention) -> ActivationElements:
    """Return what multi-head latent attention keeps in its expanded form, as training runs it.

    Queries and keys are put together from two parts each, so both are tensors of their own; values
    are a view of the up-projection's output, which thus stays whole with its unrotated keys, unless
    they are copied. Both
    compressed rows pass a norm; they and it are whole on every tensor-parallel rank.
    """
    compressed = (attention.query_rank or 0) + attention.key_value_rank
    return _sum(
        _elements(
            gathered=(2.0 + _COPIED_BY_NORM[Norm.RMS]) * compressed,
        ),
        _expanded(attention),
        _attention_output(attention),
    )


def _expanded(attention: LatentAttention) -> ActivationElements:
    """Return queries, keys and values, and what stays of the product that values are a view of.

    Fused kernels copy values out of it, so that unrotated keys are not kept a second time.
    Source: Megatron-LM `core/transformer/multi_latent_attention.py` (`value.contiguous()`,
    `fused_apply_mla_rope_for_kv`).
    """
    core = attention_core(attention)
    keys_and_queries = 2 * core.head_count * core.key_head_size
    return _elements(
        sharded=keys_and_queries + attention.head_count * attention.value_head_size,
        row_copies=attention.head_count * attention.no_position_head_size,
    )


def _attention_output(attention: Attention) -> ActivationElements:
    """Return the attention's output and the log-sum-exp of its scores."""
    if isinstance(attention, NoAttention):
        return _elements()
    core = attention_core(attention)
    return _elements(sharded=core.head_count * core.value_head_size, float32=core.head_count)


def _feed_forward(feed_forward: FeedForward, hidden_size: int) -> ActivationElements:
    """Return the rows inside: gate, up, silu and product, or two of them where nothing gates.

    Routed experts keep them for each chosen expert, and the token's row as it was sent and as it
    came back, with the router's probabilities and choices.
    """
    if isinstance(feed_forward, NoFeedForward):
        return _elements()
    if not isinstance(feed_forward, MixtureFeedForward):
        copies = _elements(**step_copies(feed_forward))
        return _sum(_inside(feed_forward, feed_forward.ffn_size), copies)
    chosen = feed_forward.experts_per_token
    width = chosen * feed_forward.expert_ffn_size + feed_forward.shared_ffn_size
    return _sum(
        _inside(feed_forward, width),
        _elements(
            routed=2 * chosen * hidden_size,
            float32=feed_forward.expert_count + _ROUTING_WORDS_PER_CHOICE * chosen,
        ),
    )


def _inside(
    feed_forward: DenseFeedForward | MixtureFeedForward, width: int, *, expanded: bool = True
) -> ActivationElements:
    """Return the rows of `width` inside: what is expanded, and what its activation makes of it."""
    gated = feed_forward.gated
    rows = (2 if gated else 1) if expanded else 0
    return _elements(sharded=rows * width, products=width, row_copies=width if gated else 0)


def _elements(**elements: float) -> ActivationElements:
    """Return the elements that are given, and none of the other kinds."""
    return ActivationElements(**{name: float(elements.get(name, 0.0)) for name in _KINDS})


def _sum(*parts: ActivationElements) -> ActivationElements:
    return _elements(**{name: sum(getattr(part, name) for part in parts) for name in _KINDS})


def _less(whole: ActivationElements, part: ActivationElements) -> ActivationElements:
    return _elements(**{name: getattr(whole, name) - getattr(part, name) for name in _KINDS})
