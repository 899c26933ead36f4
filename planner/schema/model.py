"""Model graph: a chain of runs of identical blocks between an embedding and a head.

This is our own model document, and what every importer produces. It states shapes only; what
they cost is `planner.workload`'s business.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from planner.schema.document import Count, Document, Name, Part, PositiveCount


class Norm(StrEnum):
    """Which normalisation: `rms` has a weight, `layer` a weight and a bias."""

    RMS = "rms"
    LAYER = "layer"


class GroupedQueryAttention(Part):
    """Multi-head, grouped-query or multi-query attention."""

    kind: Literal["grouped_query"] = "grouped_query"
    head_count: PositiveCount
    key_value_head_count: PositiveCount
    head_size: PositiveCount
    query_key_value_bias: bool = False
    output_bias: bool = False
    query_key_norm: bool = False
    rotary: bool = True
    sliding_window_tokens: PositiveCount | None = None


class LatentAttention(Part):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434 section 2.1)."""

    kind: Literal["latent"] = "latent"
    head_count: PositiveCount
    query_rank: PositiveCount | None
    key_value_rank: PositiveCount
    no_position_head_size: PositiveCount
    rotary_head_size: PositiveCount
    value_head_size: PositiveCount
    bias: bool = False


class DenseFeedForward(Part):
    """Two matrices, or three when gated (SwiGLU)."""

    kind: Literal["dense"] = "dense"
    ffn_size: PositiveCount
    gated: bool = True
    bias: bool = False


class MixtureFeedForward(Part):
    """Routed experts, and shared experts that every token passes."""

    kind: Literal["mixture"] = "mixture"
    expert_count: PositiveCount
    experts_per_token: PositiveCount
    expert_ffn_size: PositiveCount
    shared_ffn_size: Count = 0
    shared_gate: bool = False
    gated: bool = True


Attention = Annotated[GroupedQueryAttention | LatentAttention, Field(discriminator="kind")]
FeedForward = Annotated[DenseFeedForward | MixtureFeedForward, Field(discriminator="kind")]


class Block(Part):
    """One transformer block: norm, attention, norm, feed-forward, each with a residual."""

    attention: Attention
    feed_forward: FeedForward
    norm: Norm = Norm.RMS


class BlockRun(Part):
    """Consecutive identical blocks."""

    block: Block
    block_count: PositiveCount


class ModelGraph(Document):
    """A decoder: embedding, runs of blocks, final norm, LM head.

    `learned_position_count` is 0 where positions are rotary. `assumptions` says in words what the
    importer had to assume.
    """

    name: Name
    architecture: Name
    hidden_size: PositiveCount
    vocabulary_size: PositiveCount
    tied_embeddings: bool = False
    learned_position_count: Count = 0
    final_norm: Norm = Norm.RMS
    head_bias: bool = False
    maximum_sequence_length: PositiveCount
    runs: Annotated[tuple[BlockRun, ...], Field(min_length=1, max_length=1024)]
    assumptions: tuple[str, ...] = ()

    @property
    def block_count(self) -> int:
        """Return the number of blocks in the chain."""
        return sum(run.block_count for run in self.runs)
