"""Activations: what forward keeps for backward, per token, under each checkpointing choice.

Counted as autograd keeps them with flash attention and norms in plain torch: per norm its input,
two intermediates and its output; queries, keys, values and the attention's output; gate, up, silu
and their product. For Llama-3-8B in 16 bits this is 200,832 bytes per token and block, where
201,097 were measured on fake tensors. *Selective* keeps the block's input, the attention's output
and the output of every second matrix product, as torchtitan's per-op policy does (`torchtitan/
distributed/activation_checkpoint.py`); *full* the block's input alone.
"""

from __future__ import annotations

from planner.schema.model import Block, LatentAttention, MixtureFeedForward
from planner.workload.flops import attention_core
from planner.workload.layer import ActivationElements, LayerActivations


def block_activations(block: Block, hidden_size: int) -> LayerActivations:
    """Return the elements per token that one block keeps under each choice."""
    return LayerActivations(
        none=_sum(_norms_kept(hidden_size), _attention_kept(block), _ffn_kept(block, hidden_size)),
        selective=_sum(
            _input_kept(hidden_size),
            _attention_selected(block),
            _ffn_selected(block, hidden_size),
        ),
        full=_input_kept(hidden_size),
    )


def edge_activations() -> LayerActivations:
    """Return what the embedding keeps: nothing but the token indices, 8 bytes each."""
    kept = ActivationElements(gathered=0.0, replicated=0.0, sharded=0.0, float32=2.0)
    return LayerActivations(none=kept, selective=kept, full=kept)


def head_activations(hidden_size: int) -> LayerActivations:
    """Return what the final norm keeps: input, two intermediates, and the head's input."""
    kept = ActivationElements(
        gathered=float(hidden_size), replicated=3.0 * hidden_size, sharded=0.0
    )
    return LayerActivations(none=kept, selective=kept, full=kept)


def _sum(*parts: ActivationElements) -> ActivationElements:
    return ActivationElements(
        gathered=sum(part.gathered for part in parts),
        replicated=sum(part.replicated for part in parts),
        sharded=sum(part.sharded for part in parts),
        float32=sum(part.float32 for part in parts),
    )


def _input_kept(hidden_size: int) -> ActivationElements:
    return ActivationElements(gathered=0.0, replicated=float(hidden_size), sharded=0.0)


def _norms_kept(hidden_size: int) -> ActivationElements:
    """Two norms: each keeps its input and two intermediates; its output feeds column products."""
    return ActivationElements(gathered=2.0 * hidden_size, replicated=6.0 * hidden_size, sharded=0.0)


def _attention_kept(block: Block) -> ActivationElements:
    """Return queries, keys, values, output and log-sum-exp; for MLA also what was compressed."""
    attention = block.attention
    core = attention_core(attention)
    query_width = core.head_count * core.key_head_size
    output_width = core.head_count * core.value_head_size
    kept = ActivationElements(
        gathered=0.0,
        replicated=0.0,
        sharded=float(query_width + core.key_value_width + output_width),
        float32=float(core.head_count),
    )
    if not isinstance(attention, LatentAttention):
        return kept
    compressed = (attention.query_rank or 0) + attention.key_value_rank
    expanded = attention.head_count * (attention.no_position_head_size + attention.value_head_size)
    latent = ActivationElements(
        gathered=float(compressed), replicated=3.0 * compressed, sharded=float(expanded)
    )
    return _sum(kept, latent)


def _ffn_kept(block: Block, hidden_size: int) -> ActivationElements:
    """Gate, up, silu and product (two rows when not gated); per chosen expert when routed."""
    feed_forward = block.feed_forward
    rows = 4 if feed_forward.gated else 2
    if not isinstance(feed_forward, MixtureFeedForward):
        return ActivationElements(
            gathered=0.0, replicated=0.0, sharded=float(rows * feed_forward.ffn_size)
        )
    chosen = feed_forward.experts_per_token
    width = chosen * feed_forward.expert_ffn_size + feed_forward.shared_ffn_size
    return ActivationElements(
        gathered=2.0 * chosen * hidden_size,
        replicated=0.0,
        sharded=float(rows * width),
        float32=float(2 * feed_forward.expert_count),
    )


def _attention_selected(block: Block) -> ActivationElements:
    """Return the attention's output, and of the projections the first and the third."""
    attention = block.attention
    core = attention_core(attention)
    output_width = core.head_count * core.value_head_size
    if isinstance(attention, LatentAttention):
        compressed = attention.query_rank or core.head_count * core.key_head_size
        return ActivationElements(
            gathered=0.0,
            replicated=float(compressed + attention.key_value_rank + attention.rotary_head_size),
            sharded=float(output_width),
            float32=float(core.head_count),
        )
    query_width = core.head_count * core.key_head_size
    return ActivationElements(
        gathered=0.0,
        replicated=0.0,
        sharded=float(query_width + output_width + core.key_value_width // 2),
        float32=float(core.head_count),
    )


def _ffn_selected(block: Block, hidden_size: int) -> ActivationElements:
    """Return the gate's product and the down projection's partial sums."""
    feed_forward = block.feed_forward
    if not isinstance(feed_forward, MixtureFeedForward):
        return ActivationElements(
            gathered=float(hidden_size), replicated=0.0, sharded=float(feed_forward.ffn_size)
        )
    chosen = feed_forward.experts_per_token
    shared = feed_forward.shared_ffn_size
    return ActivationElements(
        gathered=2.0 * chosen * hidden_size + (hidden_size if shared else 0),
        replicated=0.0,
        sharded=float(chosen * feed_forward.expert_ffn_size + shared),
        float32=float(feed_forward.expert_count),
    )
