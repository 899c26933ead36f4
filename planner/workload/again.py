"""Again: parts of a block that are recomputed by themselves, as backward runs them once more.

The names are those of Megatron-LM's `--recompute-modules`.

Source: Megatron-LM `megatron/training/arguments.py`; `core/transformer/multi_latent_attention.py`
(`qkv_up_proj_and_rope_apply`).
"""

from __future__ import annotations

from planner.schema.model import Block, LatentAttention, MixtureFeedForward, Norm
from planner.workload.elementwise import (
    NORM_KERNELS,
    NORM_PASSES,
    ROTARY_PASSES,
    activation_passes,
)
from planner.workload.flops import read_row_count
from planner.workload.launches import LATENT_KERNELS, activation_kernel_count
from planner.workload.layer import ElementwiseTraffic, RunAgain

_LATENT_PRODUCTS = frozenset({"query_up", "key_value_up"})


def run_again_of(block: Block, hidden_size: int, names: frozenset[str]) -> RunAgain | None:
    """Return what running the parts `names` again takes; none if the block has none of them."""
    found = {
        "layernorm": _norms(block, hidden_size),
        "moe_act": _expert_gates(block),
        "mla_up_proj": _expansion(block),
    }
    parts = [part for name, part in found.items() if part is not None and name in names]
    if not parts:
        return None
    return RunAgain(
        gemms=frozenset[str]().union(*(part.gemms for part in parts)),
        elementwise=ElementwiseTraffic(
            replicated=sum(part.elementwise.replicated for part in parts),
            sharded=sum(part.elementwise.sharded for part in parts),
            kernel_count=sum(part.elementwise.kernel_count for part in parts),
        ),
    )


def _norms(block: Block, hidden_size: int) -> RunAgain:
    """Return the norms before attention and feed-forward."""
    count = read_row_count(block)
    kernels = count * NORM_KERNELS[block.norm]
    return _part(replicated=count * NORM_PASSES * hidden_size, kernels=kernels)


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
    kernels: int,
) -> RunAgain:
    traffic = ElementwiseTraffic(
        replicated=float(replicated), sharded=float(sharded), kernel_count=kernels
    )
    return RunAgain(gemms=gemms, elementwise=traffic)
