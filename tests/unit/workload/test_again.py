"""Parts that are recomputed by themselves, and kernels of mixtures, by hand."""

from __future__ import annotations

from planner.importers.models import read_model
from planner.schema.model import Block, DenseFeedForward, LatentAttention, MixtureFeedForward
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
    """Two norms of 4 passes over 64, and gates of 5 over two experts of 32; no product."""
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
