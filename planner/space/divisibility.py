"""Divisibility: the sizes of a model that degrees have to divide."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from planner.schema.job import Job, Optimizer, Stack
from planner.schema.model import (
    Block,
    CompressedAttention,
    DenseFeedForward,
    GroupedQueryAttention,
    LatentAttention,
    LinearAttentionMixer,
    MixtureFeedForward,
    ModelGraph,
    NoAttention,
    SelectiveScanMixer,
    ShortConvolutionMixer,
    StateSpaceMixer,
)
from planner.schema.strategy import ContextParallelKind
from planner.workload.chain import tower_lengths

_PACKED_BITS = 4


def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of `number` in increasing order."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def tensor_parallel_sizes(
    graph: ModelGraph, job: Job | None = None, *, degree: int = 1
) -> dict[str, int]:
    """Return every size that the tensor-parallel degree has to divide, by what it counts.

    Frozen weights of 4 bits share bytes two by two, which ranks cannot. Not the vocabulary: torch's
    DTensor shards it unevenly, and Megatron pads it. It is priced as if divided, by less than an
    entry a rank too little. Nor key-value heads that as many ranks as `degree` can share.
    """
    if graph.is_measured:
        return {"blocks, of which a trace knows totals alone": 1}
    sizes: dict[str, int] = {}
    for run in graph.runs:
        is_shared = job is not None and shares_key_values(run.block, degree, job)
        sizes.update(_block_sizes(run.block, divides_key_values=not is_shared))
        adapters = None if job is None else job.adapters
        if adapters is not None and adapters.base_bits == _PACKED_BITS:
            sizes.update(_pairs(run.block))
    return sizes


def _pairs(block: Block) -> dict[str, int]:
    """Return the pairs of inputs of linears whose inputs are split."""
    attention, feed_forward = block.attention, block.feed_forward
    widths = []
    if isinstance(attention, GroupedQueryAttention):
        widths.append(attention.head_count * attention.head_size)
    if isinstance(feed_forward, DenseFeedForward):
        widths.append(feed_forward.ffn_size)
    return {f"{n // 2} pairs of {n} inputs, which share a byte in 4 bits": n // 2 for n in widths}


def shares_key_values(block: Block, degree: int, job: Job) -> bool:
    """Return whether tensor-parallel ranks, more than key-value heads, can share these.

    Megatron-Core gathers queries, keys and values of heads of one size, whose columns are split
    evenly all the same, and each rank takes what it needs. Muon there takes queries, keys and
    values of whole groups apart.

    Source: Megatron-LM 0.16 to 0.19 `core/transformer/attention.py` (`SelfAttention`),
    `transformer_config.py` (`__post_init__`), `core/optimizer/emerging_optimizers.py`.
    """
    attention = block.attention
    if not isinstance(attention, GroupedQueryAttention) or block.cross_attention is not None:
        return False
    count, size = attention.key_value_head_count, attention.head_size
    has_own_keys = not (attention.shares_keys or attention.values_are_keys)
    is_plain = has_own_keys and not attention.differential and attention.value_size == size
    is_even = degree % count == 0 and 2 * count * size % degree == 0
    is_gathered = job.stack is Stack.MEGATRON and job.optimizer is not Optimizer.MUON
    return is_gathered and is_plain and is_even and degree > count


def _block_sizes(block: Block, *, divides_key_values: bool) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for heads, key_value_heads in _heads(block):
        sizes[f"{heads} attention heads"] = heads
        if key_value_heads != heads and divides_key_values:
            sizes[f"{key_value_heads} key-value heads"] = key_value_heads
    sizes.update(_mixer_sizes(block))
    if isinstance(block.attention, CompressedAttention):
        groups = block.attention.output_group_count
        sizes[f"{groups} groups of attention's output"] = groups
    feed_forward = block.feed_forward
    if isinstance(feed_forward, MixtureFeedForward):
        sizes["columns of an expert"] = feed_forward.expert_ffn_size
        if feed_forward.shared_ffn_size:
            sizes["columns of the shared expert"] = feed_forward.shared_ffn_size
    elif isinstance(feed_forward, DenseFeedForward):
        # the number is in the name: a tower and a decoder differ, and both must divide
        sizes[f"{feed_forward.ffn_size} columns of the feed-forward"] = feed_forward.ffn_size
    return sizes


def _mixer_sizes(block: Block) -> dict[str, int]:
    """Return the heads and groups of a mixer, which whole ranks have, as Megatron asks."""
    mixer = block.mixer
    if mixer is None:
        return {}
    if isinstance(mixer, StateSpaceMixer):
        return {
            f"{mixer.head_count} state-space heads": mixer.head_count,
            f"{mixer.group_count} state-space groups": mixer.group_count,
        }
    if isinstance(mixer, LinearAttentionMixer):
        return {f"{mixer.head_count} linear-attention heads": mixer.head_count}
    if isinstance(mixer, SelectiveScanMixer):
        return {"1 copy of a selective scan, which ranks cannot share": 1}
    if isinstance(mixer, ShortConvolutionMixer):
        return {f"{mixer.inner_width} channels of a short convolution": mixer.inner_width}
    return {
        f"{mixer.value_head_count} linear-attention value heads": mixer.value_head_count,
        f"{mixer.key_head_count} linear-attention key heads": mixer.key_head_count,
    }


def _heads(block: Block) -> Iterator[tuple[int, int]]:
    """Yield heads and key-value heads of each attention; latent ones have one per head."""
    for attention in (block.attention, block.cross_attention):
        if isinstance(attention, LatentAttention | CompressedAttention):
            yield attention.head_count, attention.head_count
        elif attention is not None and not isinstance(attention, NoAttention):
            yield attention.head_count, attention.key_value_head_count


def tensor_parallel_obstacles(
    graph: ModelGraph, degree: int, job: Job | None = None
) -> tuple[str, ...]:
    """Return what of the model the tensor-parallel degree does not divide, in words."""
    sizes = tensor_parallel_sizes(graph, job, degree=degree)
    undivided = {what: size for what, size in sizes.items() if size % degree}
    if graph.is_measured:
        return tuple(undivided)
    return tuple(
        what if what[0].isdigit() else f"{size} {what}" for what, size in undivided.items()
    )


def sharing_assumptions(graph: ModelGraph, degree: int) -> tuple[str, ...]:
    """Return how tensor-parallel ranks share what of the model they do not divide."""
    said = (vocabulary_assumption(graph, degree), _key_value_assumption(graph, degree))
    return tuple(one for one in said if one is not None)


def vocabulary_assumption(graph: ModelGraph, degree: int) -> str | None:
    """Return how tensor-parallel ranks share a vocabulary that they do not divide, None if they do.

    Source: `--make-vocab-size-divisible-by` of Megatron-LM, 128 x the degree by default.
    """
    if graph.is_measured or graph.vocabulary_size % degree == 0:
        return None
    unit = 128 * degree
    size = graph.vocabulary_size
    return (
        f"{degree} tensor-parallel ranks share a vocabulary of {size} that they do not divide: "
        f"Megatron pads it to {-(-size // unit) * unit}, torch shards it unevenly, and what does "
        f"neither needs vocab_size {-(-size // degree) * degree}"
    )


def _key_value_assumption(graph: ModelGraph, degree: int) -> str | None:
    """Return how tensor-parallel ranks share key-value heads that are fewer, None if none are."""
    kinds = [run.block.attention for run in graph.runs if run.measured is None]
    attentions = [kind for kind in kinds if isinstance(kind, GroupedQueryAttention)]
    fewest = min((one.key_value_head_count for one in attentions), default=degree)
    if fewest >= degree:
        return None
    release = "0.17" if any(one.output_gate for one in attentions) else "0.16"
    return (
        f"{degree} tensor-parallel ranks share {fewest} key-value heads: they gather queries, keys "
        f"and values, which Megatron-Core does from {release} on"
    )


def expert_count(graph: ModelGraph) -> int:
    """Return the greatest common divisor of the blocks' routed experts, 1 for a model without."""
    counts = {
        run.block.feed_forward.expert_count
        for run in graph.runs
        if isinstance(run.block.feed_forward, MixtureFeedForward)
    }
    return gcd(*counts) or 1


def has_experts(graph: ModelGraph) -> bool:
    """Return whether any block routes tokens to experts."""
    return any(isinstance(run.block.feed_forward, MixtureFeedForward) for run in graph.runs)


def context_parallel_obstacle(
    graph: ModelGraph,
    kind: ContextParallelKind,
    *,
    context: int,
    tensor: int,
    length: int,
    stack: Stack = Stack.TORCH,
) -> str | None:
    """Return why context-parallel ranks cannot share sequences of `length`, None if they can.

    A ring gives each rank two pieces, one early and one late, so that causal work is balanced. The
    tokens of towers are divided as well, where no mask asks for balance.
    Exchanging heads gives each rank whole heads; key-value heads may be fewer, where ranks that
    share one get copies of it, but for Transformer Engine, which takes whole ones alone
    (`attention/dot_product_attention/context_parallel.py`, `AttnFuncWithCPAndQKVOA2A`).
    """
    if context == 1:
        return None
    undivided = _undivided(graph, context)
    if undivided is not None:
        return undivided
    if kind is ContextParallelKind.RING:
        if length % (2 * context):
            return (
                f"twice the degree does not divide sequence_length {length}, so causal work "
                "cannot be balanced"
            )
        return None
    if length % context:
        return f"does not divide sequence_length {length}"
    copies = stack is not Stack.MEGATRON
    return _heads_obstacle(graph, context=context, tensor=tensor, copies_heads=copies)


def _undivided(graph: ModelGraph, context: int) -> str | None:
    """Return which tokens, beside the job's own sequences, context ranks cannot share."""
    if graph.is_measured:
        return "cannot divide the sequence of blocks of which a trace knows totals alone"
    if any(run.block.mixer is not None for run in graph.runs):
        return "cannot divide a sequence along which blocks carry a state"
    if any(isinstance(run.block.attention, CompressedAttention) for run in graph.runs):
        return "cannot divide a sequence whose keys are compressed window by window"
    if any(_is_indexed(run.block) for run in graph.runs):
        return "cannot divide a sequence of whose keys an index picks some"
    for tokens in tower_lengths(graph):
        if tokens % context:
            return f"does not divide the {tokens} tokens of a tower"
    return None


def _is_indexed(block: Block) -> bool:
    return isinstance(block.attention, LatentAttention) and block.attention.index is not None


def sequence_parallel_obstacle(graph: ModelGraph, *, parts: int, length: int) -> str | None:
    """Return which tokens do not fall into `parts`, one for each tensor and context rank."""
    if length % parts:
        return f"sequence_length {length}"
    for tokens in tower_lengths(graph):
        if tokens % parts:
            return f"the {tokens} tokens of a tower"
    return None


def _heads_obstacle(
    graph: ModelGraph, *, context: int, tensor: int, copies_heads: bool
) -> str | None:
    after = f" after tensor_parallel_degree {tensor}" if tensor > 1 else ""
    for heads, key_value_heads in (pair for run in graph.runs for pair in _heads(run.block)):
        if heads % (tensor * context):
            return f"does not divide the model's {heads} attention heads{after}"
        own = max(key_value_heads // tensor, 1)
        if own % context == 0:
            continue
        if not copies_heads:
            return (
                f"does not divide the model's {key_value_heads} key-value heads{after}, of which "
                "Transformer Engine gives each rank whole ones"
            )
        if context % own:
            return (
                f"and the model's {key_value_heads} key-value heads{after} do not divide one "
                "another"
            )
    return None
