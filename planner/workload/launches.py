"""Launches: kernels of a mixture beside its products, and those after routing.

Routers of DeepSeek's line, which come with latent attention, choose groups of experts first. What
rotary of latent attention launches is counted in Megatron-Core, whose tables are made anew.
"""

from __future__ import annotations

from planner.schema.model import (
    Block,
    FeedForward,
    LatentAttention,
    MixtureFeedForward,
    NoFeedForward,
)

# Concatenate, cosine and sine with their scale and type, negate, stack, two products and a sum,
# concatenate: 13 for queries and for keys each. Then queries, keys and values are put together.
# Source: Megatron-LM `core/models/common/embeddings/rope_utils.py` (`_apply_rotary_pos_emb_bshd`)
# and `core/transformer/multi_latent_attention.py` (`qkv_up_proj_and_rope_apply`).
LATENT_KERNELS = 29
_ROUTING_KERNELS = 4  # softmax, top-k, and their formats
_PERMUTING_KERNELS = 15  # sort, count, gather, weigh, scatter
# Sigmoid, bias, best groups and their mask, gather, sum, scale: routers of DeepSeek-V3 and GLM-4.5
# launch 20 and 19 kernels in transformers' layers, that of Qwen3 launches 5, each with one product.
_GROUP_ROUTING_KERNELS = 15
_SHARED_KERNELS = 3  # activation, product, and the sum with what routed experts put out


def mixture_kernel_count(block: Block) -> int:
    """Return how many kernels a mixture launches beside its products and its experts' gates."""
    feed_forward = block.feed_forward
    if not isinstance(feed_forward, MixtureFeedForward):
        return 0
    groups = _GROUP_ROUTING_KERNELS if isinstance(block.attention, LatentAttention) else 0
    return _ROUTING_KERNELS + groups + _permuting_kernel_count(feed_forward)


def activation_kernel_count(feed_forward: FeedForward) -> int:
    """Return how many kernels the activation of a feed-forward is, with its gate's product."""
    if isinstance(feed_forward, NoFeedForward):
        return 0
    return 2 if feed_forward.gated else 1


def feed_forward_kernel_count(block: Block) -> int:
    """Return how many kernels beside products follow attention's, and the router where it is one.

    Those that move rows to experts and back, gates, and the residual's sum.
    """
    feed_forward = block.feed_forward
    if isinstance(feed_forward, NoFeedForward):
        return 0
    count = 1 + activation_kernel_count(feed_forward)
    if isinstance(feed_forward, MixtureFeedForward):
        count += _permuting_kernel_count(feed_forward)
    return count


def _permuting_kernel_count(feed_forward: MixtureFeedForward) -> int:
    return _PERMUTING_KERNELS + (_SHARED_KERNELS if feed_forward.shared_ffn_size else 0)
