"""Reference decoder: Llama-style (grouped-query attention, SwiGLU, RMSNorm, rotary positions).

Shapes: B sequences, S tokens, D hidden width, N heads, K key-value heads, H head width,
V vocabulary. Parts that the pipeline split removed are `None`, and forward passes over them.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import nn

from executor.errors import UnsupportedPlanError
from executor.models.attention import fused_attention
from executor.models.declaration import BlockDeclaration, ModelDeclaration, Shapes
from executor.models.feed_forward import FeedForward
from executor.models.forward_inputs import ForwardInputs
from executor.models.mixture import Mixture
from executor.models.positions import WHOLE_SEQUENCE, SequencePart
from executor.precision import widened
from planner.schema.model import (
    Block,
    DenseFeedForward,
    GroupedQueryAttention,
    MixtureFeedForward,
    ModelGraph,
    NoFeedForward,
    Norm,
)

ROTARY_BASE = 10_000.0
NORM_EPSILON = 1e-5
INITIAL_STANDARD_DEVIATION = 0.02


class RotaryAttention(nn.Module):
    """Causal grouped-query attention with rotary positions, [B, S, D] to [B, S, D]."""

    def __init__(self, hidden_size: int, shape: GroupedQueryAttention) -> None:
        super().__init__()
        self.head_size = shape.head_size
        self.sequence_part = WHOLE_SEQUENCE
        queries = shape.head_count * shape.head_size
        keys = shape.key_value_head_count * shape.head_size
        bias = shape.query_key_value_bias
        self.query = nn.Linear(hidden_size, queries, bias=bias)
        self.key = nn.Linear(hidden_size, keys, bias=bias)
        self.value = nn.Linear(hidden_size, keys, bias=bias)
        self.output = nn.Linear(queries, hidden_size, bias=shape.output_bias)

    def forward(self, hidden_BSD: torch.Tensor) -> torch.Tensor:  # noqa: N803
        """Return what each token gathers from those before it."""
        query_BNSH = self._heads(self.query(hidden_BSD))  # noqa: N806
        key_BKSH = self._heads(self.key(hidden_BSD))  # noqa: N806
        value_BKSH = self._heads(self.value(hidden_BSD))  # noqa: N806
        cosine, sine = rotary_angles(
            hidden_BSD.shape[1], self.head_size, query_BNSH.device, self.sequence_part
        )
        mixed_BNSH = fused_attention(  # noqa: N806
            rotate(query_BNSH, cosine, sine),
            rotate(key_BKSH, cosine, sine),
            value_BKSH,
            is_causal=True,
        )
        return self.output(mixed_BNSH.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _heads(self, projected: torch.Tensor) -> torch.Tensor:
        """Return [B, S, heads x H] as [B, heads, S, H]; how many heads is up to the shard."""
        batch, length, _ = projected.shape
        return projected.view(batch, length, -1, self.head_size).transpose(1, 2)


class DecoderBlock(nn.Module):
    """Attention and feed-forward, each behind a norm and beside a residual."""

    def __init__(self, hidden_size: int, shape: Block) -> None:
        super().__init__()
        attention, feed_forward = supported_block(shape)
        self.attention_norm = nn.RMSNorm(hidden_size, eps=NORM_EPSILON)
        self.attention = RotaryAttention(hidden_size, attention)
        self.feed_forward_norm = nn.RMSNorm(hidden_size, eps=NORM_EPSILON)
        self.mixture: Mixture | None = None
        self.feed_forward: FeedForward | None = None
        if isinstance(feed_forward, MixtureFeedForward):
            self.mixture = Mixture(hidden_size, feed_forward)
        else:
            self.feed_forward = FeedForward(hidden_size, feed_forward)

    def forward(self, hidden_BSD: torch.Tensor) -> torch.Tensor:  # noqa: N803
        """Return the block's output, [B, S, D]."""
        hidden_BSD = hidden_BSD + self.attention(self.attention_norm(hidden_BSD))  # noqa: N806
        transform = self.feed_forward or self.mixture
        assert transform is not None  # noqa: S101 - a block has one of them
        return hidden_BSD + transform(self.feed_forward_norm(hidden_BSD))  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """The whole chain: tokens [B, S] to logits [B, S, V]."""

    def __init__(self, graph: ModelGraph) -> None:
        super().__init__()
        _refuse_unsupported(graph)
        self.graph = graph
        blocks = [run.block for run in graph.runs for _ in range(run.block_count)]
        self.embedding = nn.Embedding(graph.vocabulary_size, graph.hidden_size)
        self.blocks = nn.ModuleDict(
            {
                str(index): DecoderBlock(graph.hidden_size, block)
                for index, block in enumerate(blocks)
            }
        )
        self.norm = nn.RMSNorm(graph.hidden_size, eps=NORM_EPSILON)
        self.head = nn.Linear(graph.hidden_size, graph.vocabulary_size, bias=graph.head_bias)
        if graph.tied_embeddings:
            self.head.weight = self.embedding.weight

    def forward(self, tokens_or_hidden: torch.Tensor) -> torch.Tensor:
        """Return logits on the last stage, hidden states [B, S, D] on the others."""
        hidden: torch.Tensor = tokens_or_hidden
        if self.embedding is not None:
            hidden = self.embedding(hidden)
        for block in self.blocks.values():
            hidden = block(hidden)
        if self.head is None:
            return hidden
        logits: torch.Tensor = self.head(self.norm(hidden))
        return logits

    def declaration(self) -> ModelDeclaration:
        """Return where the parts stand and how they shard."""
        return ModelDeclaration(
            embedding="embedding",
            blocks="blocks",
            final_norm="norm",
            head="head",
            tied_embeddings=self.graph.tied_embeddings,
            block=BlockDeclaration(
                norms=("attention_norm", "feed_forward_norm"),
                gathered={"attention": None, "feed_forward": None, "mixture.shared": None},
                column=(
                    "attention.query",
                    "attention.key",
                    "attention.value",
                    "feed_forward.gate",
                    "feed_forward.up",
                    "mixture.shared.gate",
                    "mixture.shared.up",
                ),
                row=("attention.output", "feed_forward.down", "mixture.shared.down"),
                routers=("mixture.router", "mixture.shared_gate"),
                experts="mixture.experts",
            ),
            shapes=_shapes(self.graph),
            block_count=self.graph.block_count,
            initial_value=initial_value,
            tell_sequence_part=_tell_sequence_part,
            inputs=ForwardInputs(is_causal=True),
        )


def _tell_sequence_part(chain: nn.Module, part: SequencePart) -> None:
    for module in chain.modules():
        if isinstance(module, RotaryAttention):
            module.sequence_part = part


def initial_value(name: str, shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    """Return the whole parameter `name` at the start.

    Ones for norms, zeros for biases, else normal with a standard deviation of 0.02 (Radford et
    al. 2019, GPT-2's released code).
    """
    if name.endswith("norm.weight"):
        return torch.ones(shape)
    if name.endswith("bias"):
        return torch.zeros(shape)
    return torch.empty(shape).normal_(std=INITIAL_STANDARD_DEVIATION, generator=generator)


def rotary_angles(
    length: int, head_size: int, device: torch.device, part: SequencePart = WHOLE_SEQUENCE
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosine and sine of the angles of each of the `length` tokens of `part`, [S, H].

    They are kept from one block to the next, but where code is compiled, which fuses them.
    """
    if torch.compiler.is_compiling():
        return _angles(length, head_size, device, part)
    return kept_angles(length, head_size, device, part)


def _angles(
    length: int, head_size: int, device: torch.device, part: SequencePart
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the angles' cosine and sine. Source: Su et al. 2021, arXiv:2104.09864, equation 34."""
    exponents = torch.arange(0, head_size, 2, dtype=torch.float32, device=device) / head_size
    frequencies = torch.exp(-math.log(ROTARY_BASE) * exponents)
    positions = part.positions(length, device).float()
    angles = torch.outer(positions, frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


kept_angles = functools.lru_cache(maxsize=8)(_angles)


def rotate(heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Return `heads` [B, N, S, H] turned by their positions, in the same number format."""
    first, second = widened(heads).chunk(2, dim=-1)
    turned = widened(heads) * cosine + torch.cat((-second, first), dim=-1) * sine
    return turned.to(heads.dtype)


_LATER_PARTS = {
    "norm_placement",
    "cross_attention",
    "causal",
    "chunk_tokens",
    "query_key_norm_spans_heads",
    "key_bias",
    "sink",
    "output_gate",
    "values_are_keys",
    "scale_elements",
    "activation",
    "mixer",
    "residual_stream_count",
    "residual_mixing",
    "layer_input_size",
    "second_set_elements",
    "shares_keys",
    "value_head_size",
    "differential",
    "beside",
}
_LATER_ENDS = {"embedding_size", "before_head", "head_size"}


def supported_block(
    block: Block,
) -> tuple[GroupedQueryAttention, DenseFeedForward | MixtureFeedForward]:
    """Return the block's two halves.

    Raises:
        UnsupportedPlanError: if the reference decoder has no such attention or feed-forward.
    """
    attention, feed_forward = block.attention, block.feed_forward
    if not isinstance(attention, GroupedQueryAttention):
        raise _unsupported("attention.kind", attention.kind)
    if isinstance(feed_forward, NoFeedForward):
        raise _unsupported("feed_forward.kind", feed_forward.kind)
    if isinstance(feed_forward, MixtureFeedForward) and feed_forward.expert_bias:
        raise _unsupported("feed_forward.expert_bias", value=True)
    if attention.query_key_norm:
        raise _unsupported("attention.query_key_norm", value=True)
    if attention.sliding_window_tokens is not None:
        raise _unsupported("attention.sliding_window_tokens", attention.sliding_window_tokens)
    if not attention.rotary:
        raise _unsupported("attention.rotary", value=False)
    if block.norm is not Norm.RMS:
        raise _unsupported("norm", block.norm.value)
    _refuse_later_parts(block, attention)
    return attention, feed_forward


def _refuse_later_parts(block: Block, attention: GroupedQueryAttention) -> None:
    """Raise for what a plain decoder's document leaves out, wherever it says something else."""
    parts = (("", block), ("attention.", attention), ("feed_forward.", block.feed_forward))
    for where, part in parts:
        for name, value in part.model_dump(mode="json").items():
            if name in _LATER_PARTS:
                raise _unsupported(f"{where}{name}", value)


def _refuse_unsupported(graph: ModelGraph) -> None:
    for index, run in enumerate(graph.runs):
        for name, value in run.model_dump(mode="json").items():
            if name not in {"block", "block_count"}:
                raise _unsupported(f"runs.{index}.{name}", value)
    if graph.learned_position_count:
        raise _unsupported("learned_position_count", graph.learned_position_count)
    if graph.final_norm is not Norm.RMS:
        raise _unsupported("final_norm", graph.final_norm)
    for name, value in graph.model_dump(mode="json", include=_LATER_ENDS).items():
        raise _unsupported(name, value)


def _unsupported(field: str, value: object) -> UnsupportedPlanError:
    return UnsupportedPlanError(
        "the reference decoder has no such part",
        field=f"model.{field}",
        value=value,
        remedy="run a Llama-style model, dense or with routed experts, or pass your own "
        "build_model to parallelize()",
    )


def _shapes(graph: ModelGraph) -> Shapes:
    """Return the sizes that a degree must divide in every block: their greatest common divisors."""
    halves = [supported_block(run.block) for run in graph.runs]
    mixtures = [half for _, half in halves if isinstance(half, MixtureFeedForward)]
    widths = [half.ffn_size for _, half in halves if isinstance(half, DenseFeedForward)]
    return Shapes(
        hidden_size=graph.hidden_size,
        vocabulary_size=graph.vocabulary_size,
        head_count=math.gcd(*(attention.head_count for attention, _ in halves)),
        key_value_head_count=math.gcd(*(attention.key_value_head_count for attention, _ in halves)),
        ffn_size=math.gcd(*widths, *(mixture.shared_ffn_size for mixture in mixtures)),
        expert_count=math.gcd(*(mixture.expert_count for mixture in mixtures)),
        expert_ffn_size=math.gcd(*(mixture.expert_ffn_size for mixture in mixtures)),
    )
