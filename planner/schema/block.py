"""Block: attention, cross-attention, feed-forward and norms of one transformer layer."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from planner.errors import DocumentError
from planner.schema.compressed import CompressedAttention, KeyIndex
from planner.schema.document import Count, Part, PositiveCount
from planner.schema.entry import Entry
from planner.schema.mixer import Mixer
from planner.schema.norm import Norm, NormPlacement, TokenCount


def later(default: Any) -> Any:
    """Return a field that a document leaves out where it is `default`.

    Fields that came after the first version are such, so that a plain decoder's document, and its
    digest, stay as they were.
    """
    return Field(default=default, exclude_if=lambda value: bool(value == default))


class GroupedQueryAttention(Part):
    """Multi-head, grouped-query or multi-query attention of a sequence to itself.

    `causal` queries see no later token. A window is `sliding_window_tokens` keys to the left (and
    right, where not causal), a chunk the whole group of `chunk_tokens` that a token lies in (the
    images of a sequence, each for itself). `query_key_norm` norms each head, or with
    `query_key_norm_spans_heads` the row of all heads, by weights unless `query_key_norm_weight` is
    false. `key_bias` false leaves keys out of
    `query_key_value_bias`. `sink` is a learned score per head (gpt-oss). `output_gate`: the query
    projection is twice as wide and its other half gates the output (Qwen3-Next).
    `values_are_keys`: one projection gives both (Gemma-4). `shares_keys`: an earlier block's keys
    and values are read, and there is no projection for them (small Gemma-4). `value_head_size` is
    that of values where it is not that of keys (MiMo-V2). `differential`: the scores of each head
    weigh the values of two, in two passes, and halves of the heads are subtracted from one another
    (arXiv:2410.05258).
    """

    kind: Literal["grouped_query"] = "grouped_query"
    head_count: PositiveCount
    key_value_head_count: PositiveCount
    head_size: PositiveCount
    query_key_value_bias: bool = False
    output_bias: bool = False
    query_key_norm: bool = False
    rotary: bool = True
    sliding_window_tokens: PositiveCount | None = None
    causal: bool = later(True)
    chunk_tokens: PositiveCount | None = later(None)
    query_key_norm_spans_heads: bool = later(False)
    query_key_norm_weight: bool = later(True)
    key_bias: bool = later(True)
    sink: bool = later(False)
    output_gate: bool = later(False)
    values_are_keys: bool = later(False)
    shares_keys: bool = later(False)
    value_head_size: PositiveCount | None = later(None)
    differential: bool = later(False)

    @property
    def value_size(self) -> int:
        """Return the size of a head of values."""
        return self.value_head_size or self.head_size


class LatentAttention(Part):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434 section 2.1).

    With an `index` a token attends to as many keys as that picks (DeepSeek-V3.2, arXiv:2512.02556
    section 2.1); `picks_again` is false where it takes those that an earlier block's index picked.
    A window is `sliding_window_tokens` keys to the left.
    """

    kind: Literal["latent"] = "latent"
    head_count: PositiveCount
    query_rank: PositiveCount | None
    key_value_rank: PositiveCount
    no_position_head_size: PositiveCount
    rotary_head_size: PositiveCount
    value_head_size: PositiveCount
    bias: bool = False
    index: KeyIndex | None = later(None)
    picks_again: bool = later(True)
    sliding_window_tokens: PositiveCount | None = later(None)

    @model_validator(mode="after")
    def _picks(self) -> Self:
        if self.index is not None and self.picks_again and self.query_rank is None:
            raise DocumentError(
                "is needed by the index, whose queries come of it",
                field="query_rank",
                value=None,
                remedy="give a query_rank, or leave the index out",
            )
        return self


class CrossAttention(Part):
    """Attention of a block's tokens to all tokens that an earlier tower puts out.

    The tower's output has `source_width` elements for each of `source_tokens_per_sequence` tokens
    (`null`: as many as the job's sequence_length). Flags are those of grouped-query attention.
    """

    kind: Literal["cross"] = "cross"
    head_count: PositiveCount
    key_value_head_count: PositiveCount
    head_size: PositiveCount
    source_width: PositiveCount
    source_tokens_per_sequence: TokenCount | None = None
    query_key_value_bias: bool = False
    key_bias: bool = True
    output_bias: bool = False
    query_key_norm: bool = False


class NoAttention(Part):
    """No attention: the block has a mixer instead."""

    kind: Literal["none"] = "none"


class Activation(StrEnum):
    """How many operations the function between the matrices is made of.

    `kernel` is one. `gelu_steps` is GELU's form with a tangent, written out; in `gelu_wide_steps`
    what follows the third power has 32 bits, as under torch's autocast.
    """

    KERNEL = "kernel"
    GELU_STEPS = "gelu_steps"
    GELU_WIDE_STEPS = "gelu_wide_steps"


class DenseFeedForward(Part):
    """Two matrices, or three when gated (SwiGLU).

    `scale_elements` counts the weights that its activation has (xIELU). `activation` in steps takes
    a kernel for each where norms do as well, and one kernel where they are fused.
    """

    kind: Literal["dense"] = "dense"
    ffn_size: PositiveCount
    gated: bool = True
    bias: bool = False
    scale_elements: Count = later(0)
    activation: Activation = later(Activation.KERNEL)


class NoFeedForward(Part):
    """No feed-forward: the next block follows attention or mixer at once."""

    kind: Literal["none"] = "none"


class MixtureFeedForward(Part):
    """Routed experts, and shared experts that every token passes.

    `scale_elements` counts the weights of norms and scales that it has beside (Gemma-4).
    """

    kind: Literal["mixture"] = "mixture"
    expert_count: PositiveCount
    experts_per_token: PositiveCount
    expert_ffn_size: PositiveCount
    shared_ffn_size: Count = 0
    shared_gate: bool = False
    gated: bool = True
    expert_bias: bool = later(False)
    router_bias: bool = later(False)
    scale_elements: Count = later(0)


Attention = Annotated[
    GroupedQueryAttention | LatentAttention | CompressedAttention | CrossAttention | NoAttention,
    Field(discriminator="kind"),
]
FeedForward = Annotated[
    DenseFeedForward | MixtureFeedForward | NoFeedForward, Field(discriminator="kind")
]


class Block(Part):
    """One transformer block: attention, perhaps a cross-attention after it, feed-forward.

    Each has a residual, and norms where `norm_placement` says. A `mixer` stands in for attention of
    kind `none`, or beside another: then both read the same row and share a residual.

    `residual_stream_count` rows of the residual go side by side, collapsed into one before each
    part and mixed after it (hyper-connections, DeepSeek-V4), unless `residual_mixing` is false:
    then each goes on as it is, and the part's output is added to all. `layer_input_size` is the
    width of a row of the block's own that gates a last part, after the feed-forward (small
    Gemma-4).
    `second_set_elements` are weights that some tokens pass in place of the block's own, split among
    tensor-parallel ranks as those are (MM-DiT's for text, arXiv:2403.03206 section 4). `beside` are
    products, norms and tables over the block's rows that no other field stands for; every
    tensor-parallel rank has them whole.
    """

    attention: Attention
    feed_forward: FeedForward
    norm: Norm = Norm.RMS
    norm_placement: NormPlacement = later(NormPlacement.BEFORE)
    cross_attention: CrossAttention | None = later(None)
    mixer: Mixer | None = later(None)
    residual_stream_count: PositiveCount = later(1)
    residual_mixing: bool = later(True)
    layer_input_size: PositiveCount | None = later(None)
    second_set_elements: Count = later(0)
    beside: Entry | None = later(None)

    @model_validator(mode="after")
    def _mixes(self) -> Self:
        if isinstance(self.attention, NoAttention) and self.mixer is None:
            raise DocumentError(
                "is none, and there is no mixer",
                field="attention.kind",
                value="none",
                remedy="give the block a mixer or an attention",
            )
        if self.beside and any(one.tokens_per_sequence for one in self.beside.products):
            raise DocumentError(
                "products beside a block's parts are over its own tokens",
                field="beside.products",
                remedy="leave tokens_per_sequence out",
            )
        return self
