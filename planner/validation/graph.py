"""Graph: the model of a measured run, from the sizes that the row states or by its name.

Sizes that a row lacks are never guessed: a known name may stand for all of them, or for those of
latent attention. What no row states, norms and biases, follows the activation function, as it
does in the published models: GELU or ReLU with learned positions are GPT's (layer norms, biases),
squared ReLU is Nemotron's (layer norms, no biases), gated ones are Llama's (RMS norms, no biases).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import cycle

from pydantic import ValidationError

from planner.importers.hugging_face.activation import activated_by
from planner.importers.models import model_names, read_model
from planner.schema.complaints import complaint_words
from planner.schema.measured_run import MeasuredRun
from planner.schema.model import (
    Activation,
    Attention,
    Block,
    BlockRun,
    DenseFeedForward,
    FeedForward,
    GroupedQueryAttention,
    LatentAttention,
    MixtureFeedForward,
    ModelGraph,
    Norm,
)
from planner.validation.program import Program
from planner.validation.reasons import Assumption, Unpriceable, Unpriced

_GATED = frozenset({"swiglu", "geglu", "reglu", "silu", "gated_silu", "gated_gelu"})
_PLAIN = frozenset({"gelu", "relu", "squared_relu", "relu2", "gelu_new", "gelu_fast", "gelu_tanh"})
_PLAIN |= {"gelu_pytorch_tanh", "quick_gelu", "relu_squared"}
# Every block has a window (Mistral), or every second from the first on, as in gpt-oss. Source:
# their `config.json` (`sliding_window`, `layer_types`).
_WINDOW = re.compile(
    r"(?P<kind>[a-z_]+)\+(?P<turns>alternating_)?sliding_window_(?P<window>[1-9]\d{0,6})"
)
_HEADS = frozenset({"mha", "gqa", "mqa", "mha_bidirectional", "gqa_bidirectional"})
_ALIASES = {
    "llama2-7b": "llama-2-7b",
    "llama3-8b": "llama-3-8b",
    "llama3-70b": "llama-3-70b",
    "llama3.1-405b": "llama-3.1-405b",
    "llama3.1-8b": "llama-3-8b",
    "llama3.1-70b": "llama-3-70b",
    "nemotron-3-nano": "nemotron-3-nano-30b-a3b",
}
# Of queries in latent attention, none where they are not compressed; first match decides. All else
# is alike in these models. Source: their `config.json` on Hugging Face (`q_lora_rank`).
_QUERY_RANKS: tuple[tuple[str, int | None], ...] = (
    ("v2-lite", None),
    ("moonlight", None),
    ("deepseek-v2", 1536),
    ("deepseek-v3", 1536),
    ("deepseek-r1", 1536),
    ("kimi-k2", 1536),
)
# Layers of state spaces take turns with attention, and no key says which, nor their sizes.
_HYBRID = re.compile(r"^hybrid|\bmamba|\bjamba|\bnemotron-?(h|3)\b", re.IGNORECASE)
# An encoder, a tower or a diffusion model has sizes beside those of the one chain that rows state.
_PARTS = re.compile(
    r"encoder-?decoder|\bm?t5\b|\bbart\b|\bwhisper\b|\bvl\b|\bllava\b|\binternvl|\bvlm\b"
    r"|\bvision|multi-?modal|\bdiffusion\b|\bdit\b",
    re.IGNORECASE,
)
_FEW_DENSE_RATIO = 0.25  # below it dense layers come first (DeepSeek), above they alternate


# Masked language models learn from 15 % of their tokens, whose rows alone most programs put through
# the head. Source: Devlin et al. 2019, arXiv:1810.04805, section 3.1; google-research/bert
# `run_pretraining.py` (`gather_indexes`), NVIDIA DeepLearningExamples `LanguageModeling/BERT`.
_MASKED_RATIO = 0.15


def graph_of(run: MeasuredRun, program: Program) -> tuple[ModelGraph, tuple[Assumption, ...]]:
    """Return the model graph of `run`, as `program` reads its rows, and what was assumed for it.

    Raises:
        Unpriced: if a size is missing, or a layer is of a kind that no graph can say.
    """
    if any(_PARTS.search(words or "") for words in (run.arch_note, run.model)):
        shipped = _shipped(run)
        if shipped is None or not shipped.towers():
            raise Unpriced(Unpriceable.PARTS, f"model {run.model}")
        return shipped, ()
    hybrid = any(_HYBRID.search(words or "") for words in (run.arch_note, run.model))
    if hybrid or run.layers is None or run.hidden_size is None:
        shipped = _shipped(run)
        if hybrid and (shipped is None or not _has_mixers(shipped)):
            raise Unpriced(Unpriceable.ATTENTION, f"state-space layers of {run.model}")
        if shipped is None:
            raise Unpriced(Unpriceable.SHAPE, f"model {run.model}: layers or hidden_size")
        return shipped, ()
    try:
        graph, assumed = _graph_from_shape(run, layers=run.layers, hidden_size=run.hidden_size)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise Unpriced(Unpriceable.LIMITS, f"model: {complaint_words(first)[0]}") from None
    kind = _activation_kind(run, program)
    graph = graph if kind is Activation.KERNEL else activated_by(graph, kind)
    if not _reads_masked_rows(run, program):
        return graph, assumed
    return graph.model_copy(update={"head_token_ratio": _MASKED_RATIO}), assumed


def _activation_kind(run: MeasuredRun, program: Program) -> Activation:
    """Return how many operations the activation is, as the program has it or a row names it."""
    if program.activation is Activation.KERNEL and _activation(run) == "gelu_new":
        return Activation.GELU_STEPS
    return program.activation


def _has_mixers(graph: ModelGraph) -> bool:
    return any(part.block.mixer is not None for part in graph.runs)


def _shipped(run: MeasuredRun) -> ModelGraph | None:
    name = (run.model or "").lower()
    name = _ALIASES.get(name, name)
    return read_model(name)[1] if name in model_names() else None


def _graph_from_shape(
    run: MeasuredRun, *, layers: int, hidden_size: int
) -> tuple[ModelGraph, tuple[Assumption, ...]]:
    vocabulary = _stated(run, "vocab")
    norm = _norm(run)
    learned = (run.position or "").lower().startswith("learned")
    assumptions = [Assumption.NORMS_FROM_ACTIVATION]
    if run.tied_embeddings is None:
        assumptions.append(Assumption.UNTIED)
    if run.mtp_layers:
        assumptions.append(Assumption.EXTRA_PREDICTION_LAYER)
    if run.moe_experts:
        assumptions.append(Assumption.EXPERTS_BALANCED)
    blocks = [
        Block(attention=part, feed_forward=feed_forward, norm=norm)
        for part, feed_forward in zip(
            cycle(_attentions(run, norm=norm)),
            _feed_forwards(run, layers + (run.mtp_layers or 0), norm=norm),
            strict=False,
        )
    ]
    graph = ModelGraph(
        name=(run.model or "model")[:200],
        architecture="measured run",
        hidden_size=hidden_size,
        vocabulary_size=vocabulary,
        tied_embeddings=bool(run.tied_embeddings),
        learned_position_count=_stated(run, "seq_len") if learned else 0,
        final_norm=norm,
        maximum_sequence_length=_stated(run, "seq_len"),
        runs=_runs(blocks),
    )
    return graph, tuple(assumptions)


def _reads_masked_rows(run: MeasuredRun, program: Program) -> bool:
    """Return whether the head reads the rows of masked tokens alone."""
    if run.masked_rows is not None:
        return run.masked_rows
    masked = (run.attention_kind or "").lower().endswith("bidirectional")
    return masked and run.task in {None, "pretrain"} and not program.reads_all_rows


def _stated(run: MeasuredRun, name: str) -> int:
    value = getattr(run, name)
    if value is None:
        raise Unpriced(Unpriceable.SHAPE, f"model {run.model}: {name}")
    return int(value)


def _activation(run: MeasuredRun) -> str:
    name = re.sub(r"[\s-]+", "_", (run.activation or "").lower())
    if name not in _GATED | _PLAIN:
        raise Unpriced(Unpriceable.FEED_FORWARD, f"activation {run.activation}")
    return name


def _norm(run: MeasuredRun) -> Norm:
    return Norm.RMS if _activation(run) in _GATED else Norm.LAYER


def _has_biases(run: MeasuredRun) -> bool:
    return (run.position or "").lower().startswith("learned") and _activation(run) in _PLAIN


def _attentions(run: MeasuredRun, *, norm: Norm) -> tuple[Attention, ...]:
    """Return the attentions that blocks have in turn: one, or one with a window and one without."""
    kind = (run.attention_kind or "mha").lower()
    if kind == "mla":
        return (_latent_attention(run),)
    windowed = _WINDOW.fullmatch(kind)
    whole = _attention(run, windowed["kind"] if windowed else kind, norm=norm)
    if windowed is None:
        return (whole,)
    cut = whole.model_copy(update={"sliding_window_tokens": int(windowed["window"])})
    return (cut, whole) if windowed["turns"] else (cut,)


def _attention(run: MeasuredRun, kind: str, *, norm: Norm) -> GroupedQueryAttention:
    if kind not in _HEADS:
        raise Unpriced(Unpriceable.ATTENTION, f"attention_kind {run.attention_kind}")
    heads = _stated(run, "heads")
    biases = _has_biases(run) and norm is Norm.LAYER
    return GroupedQueryAttention(
        head_count=heads,
        key_value_head_count=run.kv_heads or heads,
        head_size=run.head_dim or max(_stated(run, "hidden_size") // heads, 1),
        query_key_value_bias=biases,
        output_bias=biases,
        rotary=(run.position or "").lower().startswith(("rope", "rotary")),
        causal=not kind.endswith("bidirectional"),
    )


def _latent_attention(run: MeasuredRun) -> LatentAttention:
    """Return the latent attention that published models of that name have.

    No key states its ranks.
    """
    name = (run.model or "").lower()
    for part, query_rank in _QUERY_RANKS:
        if part in name:
            return LatentAttention(
                head_count=_stated(run, "heads"),
                query_rank=query_rank,
                key_value_rank=512,
                no_position_head_size=128,
                rotary_head_size=64,
                value_head_size=128,
            )
    raise Unpriced(Unpriceable.ATTENTION, f"ranks of {run.model}'s latent attention")


def _feed_forwards(run: MeasuredRun, count: int, *, norm: Norm) -> Sequence[FeedForward]:
    """Return the feed-forward of every layer, in order."""
    gated = _activation(run) in _GATED
    if not run.moe_experts:
        return [_dense(run, gated=gated, norm=norm)] * count
    mixture = MixtureFeedForward(
        expert_count=run.moe_experts,
        experts_per_token=_stated(run, "moe_top_k"),
        expert_ffn_size=run.moe_ffn or _stated(run, "ffn_size"),
        shared_ffn_size=run.moe_shared_ffn or 0,
        gated=gated,
    )
    dense_count = run.moe_dense_layers or 0
    if dense_count > count or mixture.experts_per_token > mixture.expert_count:
        raise Unpriced(Unpriceable.SHAPE, f"model {run.model}: moe_dense_layers or moe_top_k")
    if not dense_count:
        return [mixture] * count
    dense = _dense(run, gated=gated, norm=norm)
    if dense_count <= _FEW_DENSE_RATIO * count:
        return [dense] * dense_count + [mixture] * (count - dense_count)
    marks = [(index + 1) * dense_count // count for index in range(count)]
    return [
        dense if mark > before else mixture
        for before, mark in zip([0, *marks[:-1]], marks, strict=True)
    ]


def _dense(run: MeasuredRun, *, gated: bool, norm: Norm) -> DenseFeedForward:
    biases = _has_biases(run) and norm is Norm.LAYER
    return DenseFeedForward(ffn_size=_stated(run, "ffn_size"), gated=gated, bias=biases)


def _runs(blocks: list[Block]) -> tuple[BlockRun, ...]:
    """Return neighbours that are alike as one run."""
    runs: list[tuple[Block, int]] = []
    for block in blocks:
        if runs and runs[-1][0] == block:
            runs[-1] = (block, runs[-1][1] + 1)
        else:
            runs.append((block, 1))
    return tuple(BlockRun(block=block, block_count=count) for block, count in runs)
