"""Parts that are recomputed by themselves, and kernels of mixtures, by hand."""

from __future__ import annotations

from planner.importers.models import read_model
from planner.schema.model import (
    Block,
    DenseFeedForward,
    GroupedQueryAttention,
    LatentAttention,
    MixtureFeedForward,
)
from planner.workload.again import run_again_of
from planner.workload.elementwise import elementwise_traffic
from planner.workload.layer import LayerWorkload
from planner.workload.model import model_workload

LATENT = LatentAttention(
    head_count=4,
    query_rank=24,
    key_value_rank=20,
    no_position_head_size=16,
    rotary_head_size=8,
    value_head_size=16,
)
MIXTURE = MixtureFeedForward(expert_count=8, experts_per_token=2, expert_ffn_size=32)


def test_expanding_what_latent_attention_compressed() -> None:
    """Two norms of 4 passes, rotary 4 times over 4 heads of 24 for queries and keys; 29 + 2 x 5."""
    block = Block(attention=LATENT, feed_forward=MIXTURE)
    again = run_again_of(block, 64, frozenset({"mla_up_proj"}))
    assert again is not None
    assert again.gemms == {"query_up", "key_value_up"}
    assert again.elementwise.replicated == 4 * (24 + 20)
    assert again.elementwise.sharded == 4 * 2 * 4 * 24
    assert again.elementwise.kernel_count == 29 + 2 * 5


def test_norms_and_gates_add_up() -> None:
    """Two norms of 4 passes over 64, and gates of 5 over two experts of 32; no product.

    Latent attention and the router read rows that are normed before them.
    """
    block = Block(attention=LATENT, feed_forward=MIXTURE)
    again = run_again_of(block, 64, frozenset({"layernorm", "moe_act", "unknown"}))
    assert again is not None
    assert again.gemms == frozenset()
    assert (again.elementwise.replicated, again.elementwise.sharded) == (2 * 4 * 64, 5 * 2 * 32)
    assert again.elementwise.kernel_count == 2 * 5 + 2


def test_a_block_without_the_part_runs_nothing_again() -> None:
    block = Block(attention=LATENT, feed_forward=DenseFeedForward(ffn_size=128))
    assert run_again_of(block, 64, frozenset({"moe_act"})) is None
    assert run_again_of(block, 64, frozenset()) is None


def test_routers_of_groups_and_shared_experts_launch_more() -> None:
    """19 kernels route and permute; 15 more choose groups of experts, 3 add shared ones."""
    dense = elementwise_traffic(
        Block(attention=LATENT, feed_forward=DenseFeedForward(ffn_size=1)), 64
    )
    routed = elementwise_traffic(Block(attention=LATENT, feed_forward=MIXTURE), 64)
    shared = MIXTURE.model_copy(update={"shared_ffn_size": 32})
    both = elementwise_traffic(Block(attention=LATENT, feed_forward=shared), 64)
    assert routed.kernel_count - dense.kernel_count == 19 + 15
    assert both.kernel_count - routed.kernel_count == 3


def test_a_block_of_deepseek_v3_launches_102_kernels_beside_attention_s_own() -> None:
    """12 products, four norms of 5, two sums, a gate of 2, 29 of rotary, 19 + 15 + 3 of routing."""
    layer: LayerWorkload = model_workload(read_model("deepseek-v3")[1]).runs[1][0]
    assert len(layer.gemms) + layer.elementwise.kernel_count == 12 + 20 + 2 + 2 + 29 + 37


def test_products_with_a_norm_inside_run_none_again_by_itself() -> None:
    grouped = GroupedQueryAttention(head_count=4, key_value_head_count=2, head_size=16)
    dense = Block(attention=grouped, feed_forward=DenseFeedForward(ffn_size=128))
    routed = Block(attention=grouped, feed_forward=MIXTURE)
    assert run_again_of(dense, 64, frozenset({"layernorm"})) is None
    again = run_again_of(routed, 64, frozenset({"layernorm"}))
    assert again is not None
    assert again.elementwise.replicated == 4 * 64


def test_a_dense_feed_forward_runs_again_with_its_norm_and_one_reduction() -> None:
    block = Block(attention=LATENT, feed_forward=DenseFeedForward(ffn_size=128))
    again = run_again_of(block, 64, frozenset({"mlp"}))
    assert again is not None
    assert again.gemms == {"ffn_gate", "ffn_up", "ffn_down"}
    assert (again.elementwise.replicated, again.elementwise.sharded) == (4 * 64, 5 * 128)
    assert (again.tensor_rounds, again.experts, again.attention) == (1, False, False)


def test_a_mixture_runs_again_from_its_router_to_its_sum() -> None:
    """Dispatch and combination too; what is asked for of its experts is among it."""
    shared = MIXTURE.model_copy(update={"shared_ffn_size": 48})
    block = Block(attention=LATENT, feed_forward=shared)
    again = run_again_of(block, 64, frozenset({"moe", "moe_act", "shared_experts"}))
    assert again == run_again_of(block, 64, frozenset({"moe"}))
    assert again is not None
    assert "router" in again.gemms
    assert again.elementwise.sharded == 5 * (2 * 32 + 48)
    assert (again.elementwise.replicated, again.elementwise.routed) == (4 * 8, 6 * 2 * 64)
    assert (again.tensor_rounds, again.experts) == (1, True)
    alone = run_again_of(block, 64, frozenset({"shared_experts"}))
    assert alone is not None
    assert alone.gemms == {"shared_gate", "shared_up", "shared_down"}
    assert (alone.tensor_rounds, alone.experts) == (1, False)
