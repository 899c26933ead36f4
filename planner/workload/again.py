"""Again: parts of a block that are recomputed by themselves, as backward runs them once more.

The names are those of Megatron-LM's `--recompute-modules`.

Source: Megatron-LM `megatron/training/arguments.py`; `core/transformer/multi_latent_attention.py`
(`qkv_up_proj_and_rope_apply`), `core/transformer/attention.py`
(`_checkpointed_attention_forward`, which asks for no kind of attention),
`core/transformer/transformer_layer.py` (`recompute_mlp`), `core/transformer/moe/moe_layer.py`
(`custom_forward`, from the router to the sum with shared experts).
"""

from __future__ import annotations

from dataclasses import replace

from planner.schema.model import (
    Block,
    LatentAttention,
    MixtureFeedForward,
    NoAttention,
    NoFeedForward,
    Norm,
)
from planner.workload.elementwise import (
    NORM_KERNELS,
    NORM_PASSES,
    ROTARY_PASSES,
    activation_passes,
    routed_elements,
)
from planner.workload.flops import read_row_count
from planner.workload.launches import (
    LATENT_KERNELS,
    activation_kernel_count,
    mixture_kernel_count,
)
from planner.workload.layer import ElementwiseTraffic, RunAgain

_LATENT_PRODUCTS = frozenset({"query_up", "key_value_up"})
_DENSE_PRODUCTS = frozenset({"ffn_gate", "ffn_up", "ffn_down"})
_ROUTED_PRODUCTS = frozenset({"router", "expert_gate", "expert_up", "expert_down"})
_SHARED_PRODUCTS = frozenset({"shared_gate", "shared_up", "shared_down"})
_INSIDE_MIXTURES = frozenset({"moe_act", "shared_experts"})


def run_again_of(block: Block, hidden_size: int, names: frozenset[str]) -> RunAgain | None:
    """Return what running the parts `names` again takes; none if the block has none of them."""
    found = {
        "layernorm": _norms(block, hidden_size),
        "core_attn": _core(block),
        "mlp": _dense(block, hidden_size),
        "moe": _mixture(block, hidden_size),
        "moe_act": _expert_gates(block),
        "shared_experts": _shared(block),
        "mla_up_proj": _expansion(block),
    }
    asked = undivided(names)
    parts = [part for name, part in found.items() if part is not None and name in asked]
    if not parts:
        return None
    return RunAgain(
        gemms=frozenset[str]().union(*(part.gemms for part in parts)),
        attention=any(part.attention for part in parts),
        experts=any(part.experts for part in parts),
        tensor_rounds=sum(part.tensor_rounds for part in parts),
        elementwise=ElementwiseTraffic(
            replicated=sum(part.elementwise.replicated for part in parts),
            sharded=sum(part.elementwise.sharded for part in parts),
            routed=sum(part.elementwise.routed for part in parts),
            kernel_count=sum(part.elementwise.kernel_count for part in parts),
        ),
    )


def undivided(names: frozenset[str]) -> frozenset[str]:
    """Return the names without those of parts of another that is among them."""
    return names - _INSIDE_MIXTURES if "moe" in names else names


def own_norm_count(block: Block) -> int:
    """Return how many norms that parts of a block read are modules of their own.

    Products of Transformer Engine that read a normed row have the norm inside, and only latent
    attention, routers and experts read a row that is normed before.
    """
    latent = isinstance(block.attention, LatentAttention)
    routed = isinstance(block.feed_forward, MixtureFeedForward)
    return min(int(latent) + int(routed), read_row_count(block))


def _norms(block: Block, hidden_size: int) -> RunAgain | None:
    """Return the norms that are modules of their own."""
    count = own_norm_count(block)
    if not count:
        return None
    return _part(
        replicated=count * NORM_PASSES * hidden_size, kernels=count * NORM_KERNELS[block.norm]
    )


def _core(block: Block) -> RunAgain | None:
    """Return attention's core, fused or not."""
    if isinstance(block.attention, NoAttention):
        return None
    return replace(_part(kernels=1), attention=True)


def _dense(block: Block, hidden_size: int) -> RunAgain | None:
    """Return the feed-forward of a dense layer with the norm inside its first product."""
    feed_forward = block.feed_forward
    if isinstance(feed_forward, NoFeedForward | MixtureFeedForward):
        return None
    part = _part(
        gemms=_DENSE_PRODUCTS,
        replicated=NORM_PASSES * hidden_size,
        sharded=activation_passes(feed_forward) * feed_forward.ffn_size,
        kernels=activation_kernel_count(feed_forward) + NORM_KERNELS[block.norm],
    )
    return replace(part, tensor_rounds=1)


def _mixture(block: Block, hidden_size: int) -> RunAgain | None:
    """Return a mixture, from its router to the sum of what its experts put out."""
    mixture = block.feed_forward
    if not isinstance(mixture, MixtureFeedForward):
        return None
    width = mixture.experts_per_token * mixture.expert_ffn_size + mixture.shared_ffn_size
    part = _part(
        gemms=_ROUTED_PRODUCTS | _SHARED_PRODUCTS,
        replicated=4 * mixture.expert_count,
        routed=routed_elements(mixture, hidden_size),
        sharded=activation_passes(mixture) * width,
        kernels=mixture_kernel_count(block) + activation_kernel_count(mixture),
    )
    return replace(part, experts=True, tensor_rounds=1 if mixture.shared_ffn_size else 0)


def _shared(block: Block) -> RunAgain | None:
    """Return the shared experts of a mixture."""
    mixture = block.feed_forward
    if not isinstance(mixture, MixtureFeedForward) or not mixture.shared_ffn_size:
        return None
    part = _part(
        gemms=_SHARED_PRODUCTS,
        sharded=activation_passes(mixture) * mixture.shared_ffn_size,
        kernels=activation_kernel_count(mixture),
    )
    return replace(part, tensor_rounds=1)


def _expert_gates(block: Block) -> RunAgain | None:
    """Return the gates of routed experts."""
    mixture = block.feed_forward
    if not isinstance(mixture, MixtureFeedForward):
        return None
    width = mixture.experts_per_token * mixture.expert_ffn_size
    passes, kernels = activation_passes(mixture), activation_kernel_count(mixture)
    return _part(sharded=passes * width, kernels=kernels)


def _expansion(block: Block) -> RunAgain | None:
    """Return what makes queries, keys and values of what latent attention has compressed."""
    attention = block.attention
    if not isinstance(attention, LatentAttention):
        return None
    ranks = (attention.query_rank or 0) + attention.key_value_rank
    key_size = attention.no_position_head_size + attention.rotary_head_size
    norms = 1 if attention.query_rank is None else 2
    return _part(
        gemms=_LATENT_PRODUCTS,
        replicated=NORM_PASSES * ranks,
        sharded=ROTARY_PASSES * 2 * attention.head_count * key_size,
        kernels=LATENT_KERNELS + norms * NORM_KERNELS[Norm.RMS],
    )


def _part(
    *,
    gemms: frozenset[str] = frozenset(),
    replicated: int = 0,
    sharded: int = 0,
    routed: int = 0,
    kernels: int,
) -> RunAgain:
    traffic = ElementwiseTraffic(
        replicated=float(replicated),
        sharded=float(sharded),
        routed=float(routed),
        kernel_count=kernels,
    )
    return RunAgain(gemms=gemms, elementwise=traffic)
