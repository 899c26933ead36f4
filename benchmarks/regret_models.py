"""Models of the regret benchmark: small, and each hard in a way of its own.

All strategies of a model live side by side in the ranks' memory, a hundred of them, which bounds
its parameters to a few millions.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.schema.block import FeedForward
from planner.schema.model import (
    Block,
    BlockRun,
    DenseFeedForward,
    GroupedQueryAttention,
    MixtureFeedForward,
    ModelGraph,
)

GLOBAL_BATCH_SIZE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """A model and its job; `memory_ratio` limits a rank to a share of what its fastest plan takes.

    The share is of tensors alone, so that what a rank holds beside them does not blur it. How much
    the fuller of two expert-parallel ranks takes of untrained experts `benchmarks.routing` counted.
    """

    name: str
    graph: ModelGraph
    sequence_length: int
    global_batch_size: int = GLOBAL_BATCH_SIZE
    memory_ratio: float | None = None
    expert_load_ratio: float = 1.0


def contests() -> tuple[Contest, ...]:
    """Return the six: dense wide and deep, long sequences, experts, a vocabulary, little memory."""
    mixture = MixtureFeedForward(expert_count=8, experts_per_token=2, expert_ffn_size=128)
    wide = _graph("dense-wide", hidden=256, blocks=4, feed_forward=DenseFeedForward(ffn_size=768))
    return (
        Contest(name="dense-wide", graph=wide, sequence_length=128),
        Contest(
            name="dense-deep",
            graph=_graph(
                "dense-deep", hidden=128, blocks=8, feed_forward=DenseFeedForward(ffn_size=384)
            ),
            sequence_length=128,
        ),
        Contest(
            name="long-sequence",
            graph=_graph(
                "long-sequence", hidden=128, blocks=4, feed_forward=DenseFeedForward(ffn_size=384)
            ),
            sequence_length=512,
        ),
        Contest(
            name="mixture",
            graph=_graph("mixture", hidden=128, blocks=4, feed_forward=mixture),
            sequence_length=128,
            expert_load_ratio=1.54,
        ),
        Contest(
            name="large-vocabulary",
            graph=_graph(
                "large-vocabulary",
                hidden=128,
                blocks=4,
                feed_forward=DenseFeedForward(ffn_size=384),
                vocabulary=8192,
            ),
            sequence_length=128,
        ),
        Contest(
            name="memory-tight",
            graph=wide.model_copy(update={"name": "memory-tight"}),
            sequence_length=128,
            memory_ratio=0.6,
        ),
    )


def unseen_contests() -> tuple[Contest, ...]:
    """Return two on which nothing was chosen or fitted: shared key-value heads, and few experts."""
    few = MixtureFeedForward(expert_count=4, experts_per_token=1, expert_ffn_size=512)
    shared = _graph(
        "shared-heads",
        hidden=192,
        blocks=6,
        feed_forward=DenseFeedForward(ffn_size=640),
        key_value_head_count=2,
    )
    return (
        Contest(name="shared-heads", graph=shared, sequence_length=192),
        Contest(
            name="few-experts",
            graph=_graph("few-experts", hidden=128, blocks=6, feed_forward=few, vocabulary=2048),
            sequence_length=256,
            expert_load_ratio=1.60,
        ),
    )


def _graph(
    name: str,
    *,
    hidden: int,
    blocks: int,
    feed_forward: FeedForward,
    vocabulary: int = 512,
    key_value_head_count: int | None = None,
) -> ModelGraph:
    head_size = 32
    block = Block(
        attention=GroupedQueryAttention(
            head_count=hidden // head_size,
            key_value_head_count=key_value_head_count or hidden // head_size,
            head_size=head_size,
        ),
        feed_forward=feed_forward,
    )
    return ModelGraph(
        name=name,
        architecture="llama",
        hidden_size=hidden,
        vocabulary_size=vocabulary,
        maximum_sequence_length=4096,
        runs=(BlockRun(block=block, block_count=blocks),),
    )
