"""Model-parallel communication of one layer and micro-batch: tensor, context, expert.

Experts of a layer are spread over e expert-parallel ranks, and each expert's matrices over a of the
t tensor-parallel ranks (`expert_tensor`, which divides t). With T tokens a device, k experts a
token and hidden size h, dispatch and combine each move

    T k h / t   by all_to_all over e ranks, where each tensor-parallel rank sends its own tokens:
                under sequence parallel, or where a < t;
    T k h       where every tensor-parallel rank holds all tokens (a = t without sequence parallel);
    a T k h / t by all_gather over a ranks, where split tokens meet split experts.

None of them shrinks with e: a device sends each token to k experts, however many ranks hold them.
Between nodes some stacks send it once to each node, which hands it on.
Where experts take as many tokens as come, ranks of torch's programs first exchange how many those
are: an all_to_all asks for its sizes. On a CPU the operators that sort rows by rank, and back, take
their time as well. Where tensor-parallel ranks have other tokens inside the experts than outside,
those programs move what was chosen of each token, and with what weights, beside the tokens.
Experts that are split over fewer ranks than all else (a < t) without sequence parallel leave each
tensor-parallel rank with the output of its own tokens, which an all_gather of T h completes.

Tensor-parallel ranks beyond the key-value heads gather queries, keys and values as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from planner.cost.collectives import exposed_seconds
from planner.cost.configuration import Floats
from planner.cost.setting import Setting, key_value_ranks, layer_tokens, source_tokens
from planner.schema.job import Stack
from planner.workload.layer import AttentionCore, LayerWorkload

Role = Literal["embedding", "block", "head"]

_MERGED_BYTES = 12.0
# Of tensor parallelism's collectives, where they run beside products. Fitted on runs of Megatron,
# whose recipes have `--tp-comm-overlap`.
_OVERLAPPED_RATIO = 0.3
_COUNT_BYTES = 8.0  # of how many rows go to an expert
_CHOSEN_BYTES = 8.0  # of which expert a token passes
# Operators of an exchange beyond those of experts that are all here, by torch 2.13's dispatcher:
# sums, sizes, places, gathers, two sorts, and its collectives; tests count them.
EXCHANGE_FORWARD_OPERATORS, EXCHANGE_BACKWARD_OPERATORS = 22, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelParallelSeconds:
    """Exposed seconds of one layer and micro-batch; arrays [configurations, 1].

    `tensor_recompute_full` and `_selective` are what running forward again adds.
    """

    tensor_forward: Floats
    tensor_backward: Floats
    tensor_recompute_full: Floats
    tensor_recompute_selective: Floats
    context_forward: Floats
    context_backward: Floats
    expert_forward: Floats
    expert_backward: Floats


def model_parallel_seconds(
    layer: LayerWorkload, role: Role, setting: Setting, attention_seconds: Floats
) -> ModelParallelSeconds:
    """Return the layer's communication.

    A ring's exchange hides under attention, backward passing gradients round as well, but what it
    merges does not; exchanging heads hides under nothing, since attention waits for it.
    """
    own = layer_tokens(layer, setting) * layer.hidden_size
    rounds, once = _tensor_rounds(layer, setting), _round(own, setting)
    mixed, mixed_gradients = _mixed_seconds(layer, setting)
    tensor = rounds * once.forward + mixed
    tensor_gradients = rounds * (once.backward + _gathered_again(once.gathered, setting))
    tensor_gradients = tensor_gradients + mixed_gradients
    if role != "block":
        tensor, tensor_gradients = _end_seconds(layer, role, own, setting)
    sources = _source_rounds(layer, setting)
    ring, heads = _exchange_seconds(layer, setting)
    hidden = setting.overlap.hidden_ratio * attention_seconds
    merge, merge_gradients = _merge_seconds(layer, setting)
    expert = _expert_seconds(layer, setting)
    counts, forward_host, backward_host = _exchange_beside(layer, setting)
    routes, route_gradients = _route_seconds(layer, setting)
    with_counts = expert + counts + forward_host + routes
    again = layer.again
    rounds_again = 0.0 if again is None else again.tensor_rounds * once.forward
    experts_again = with_counts if again is not None and again.experts else 0.0
    gathered_again = 0.0 if setting.core_alone_runs_again else once.gathered
    return ModelParallelSeconds(
        tensor_forward=tensor + (sources[0] if role == "embedding" else 0.0),
        tensor_backward=tensor_gradients
        + (0.0 if role == "embedding" else sources[1])
        + rounds_again,
        tensor_recompute_full=tensor
        - (0.0 if setting.recomputes_all else _last(layer) * once.scattered),
        tensor_recompute_selective=rounds * gathered_again
        + (0.0 if setting.core_alone_runs_again else mixed),
        context_forward=np.where(
            setting.heads_exchanged, heads, np.maximum(ring - hidden, 0.0) + merge
        ),
        context_backward=np.where(
            setting.heads_exchanged,
            heads,
            np.maximum(2.0 * ring - 2.0 * hidden, 0.0) + merge_gradients,
        ),
        expert_forward=with_counts,
        expert_backward=expert + backward_host + route_gradients + experts_again,
    )


def with_experts_hidden(
    parallel: ModelParallelSeconds, *, forward: Floats, backward: Floats, setting: Setting
) -> ModelParallelSeconds:
    """Return the exchanges with dispatch and combine beside as much compute, where the job has it.

    Megatron-Core runs those of one micro-batch's forward beside another's backward.
    """
    if not setting.job.overlapped_experts:
        return parallel
    overlap = setting.overlap
    return replace(
        parallel,
        expert_forward=exposed_seconds(parallel.expert_forward, forward, overlap),
        expert_backward=exposed_seconds(parallel.expert_backward, backward, overlap),
    )


def _end_seconds(
    layer: LayerWorkload, role: Role, elements: Floats, setting: Setting
) -> tuple[Floats, Floats]:
    """Return what the embedding or the head takes of `elements` in forward and in backward.

    | end       | sequence parallel            | without                    |
    |-----------|------------------------------|----------------------------|
    | embedding | reduce_scatter; all_gather   | all_reduce; nothing        |
    | head      | all_gather; reduce_scatter   | nothing; all_reduce        |

    The table of tokens is split in rows, so that lookups are summed, and each rank needs their
    whole gradient; the head's product is split in columns. No program runs either in pieces, and
    Megatron reduces the gradients of the head's inputs beside those of its weights. Rows are
    copied as in `_round`. Without a vocabulary-parallel loss every rank gathers whole logits,
    n bytes, along their last dimension, which a copy joins (2 n read and written), and takes its
    part of their gradient.

    Source: Megatron-LM `core/tensor_parallel/layers.py` (`VocabParallelEmbedding`,
    `ColumnParallelLinear`) and `mappings.py` (`_gather_along_last_dim`).
    """
    group, split = setting.groups.tensor, setting.sequence_parallel
    message, pace = elements * setting.compute_bytes, setting.hardware.memory_bytes_per_second
    copied = np.where(setting.copies_rows, 2.0 * message / pace, 0.0)
    joined = (setting.micro_batch_size > 1.0) * copied
    gather = np.where(split, group.all_gather(message) + joined, 0.0)
    reduce = np.where(split, group.reduce_scatter(message) + copied, group.all_reduce(message))
    if role == "embedding":
        return reduce, gather
    beside = setting.stack.overlaps_tensor_parallel & setting.overlaps_tensor_parallel
    reduce = np.where(beside, 1.0 - _OVERLAPPED_RATIO, 1.0) * reduce
    reduce = reduce + _gathered_again(gather, setting)
    if setting.job.vocabulary_parallel_loss:
        return gather, reduce
    width = sum(gemm.outer_size for gemm in layer.gemms if gemm.split == "outer")
    logits = layer_tokens(layer, setting) * width * setting.compute_bytes
    joined = np.where(setting.tensor > 1.0, 2.0 * logits / pace, 0.0)
    return gather + group.all_gather(logits) + joined, reduce


def _mixed_seconds(layer: LayerWorkload, setting: Setting) -> tuple[Floats, Floats]:
    """Return seconds of gathering queries, keys and values, and of scattering their gradients.

    With n bytes of all ranks' queries, gates, keys and values, of g key-value heads, memory moves

        gather    2 n             joined along the last dimension
        scatter   3 n + 5 n / g   a rank's own queries put into zeros of their group's, joined with
                                  gradients of keys and values, put into zeros of all groups',
                                  joined in the order of ranks

    in 16 bits under fp8 as well. Attention waits for the one, the product's backward for the other.

    Source: Megatron-LM 0.19 `core/transformer/attention.py` (`get_query_key_value_tensors`),
    `core/tensor_parallel/mappings.py` (`_gather_along_last_dim`, `_reduce_scatter_along_last_dim`);
    torch `slice_backward`.
    """
    core, zero = layer.attention, np.zeros_like(setting.tokens)
    more = key_value_ranks(core, setting) < setting.tensor
    if core is None or not more.any():
        return zero, zero
    tokens, group = layer_tokens(layer, setting), setting.groups.tensor
    message = tokens * core.gathered_width * setting.compute_bytes
    passed = message / setting.hardware.memory_bytes_per_second
    gather = group.all_gather(message) + 2.0 * passed
    scatter = group.reduce_scatter(message) + (3.0 + 5.0 / core.key_value_head_count) * passed
    return np.where(more, gather, 0.0), np.where(more, scatter, 0.0)


def _gathered_again(gathered: Floats, setting: Setting) -> Floats:
    """Return what gathering rows once more adds to backward, where a job keeps them divided.

    nanotron waits for it before both gradients, unless its collectives run beside products: then it
    is under the inputs' gradient, as in Megatron and DeepSpeed, and costs nothing.

    Source: nanotron `parallel/tensor_parallel/functional.py`
    (`_ColumnLinearNoAsyncCommunicationReduceScatterMode`, `_ColumnLinearAsyncCommunication`);
    Megatron-LM `core/tensor_parallel/layers.py`.
    """
    waits = setting.job.regathered_rows and not setting.stack.activations.gathers_again
    return np.where(setting.overlaps_tensor_parallel, 0.0, waits * gathered)


def _tensor_rounds(layer: LayerWorkload, setting: Setting) -> Floats:
    """Return how often a block's [tokens, hidden] is reduced in forward, and as often in backward.

    Once after each row-split product. Routed experts alone in a feed-forward share the round of a
    dense one where all tensor-parallel ranks hold the same tokens; where tokens stay split,
    `_expert_seconds` has what they need instead.
    """
    dense = [gemm for gemm in layer.gemms if gemm.split == "inner" and not gemm.expert_count]
    alone = layer.experts_per_token > 0 and not any(g.name == "shared_down" for g in dense)
    return len(dense) + np.where(alone & setting.whole_tokens_inside, 1.0, 0.0)


def _route_seconds(layer: LayerWorkload, setting: Setting) -> tuple[Floats, Floats]:
    """Return seconds of moving tokens' experts and weights between tensor-parallel ranks.

    Forward and backward; only weights have gradients. With whole tokens inside and split ones
    outside both are gathered, and gradients scattered; with whole ones on either side each rank's
    gradients are a part of the sum, and with split ones inside alone they are gathered.
    """
    nothing = np.zeros_like(setting.tokens)
    if not layer.experts_per_token or setting.job.stack is not Stack.TORCH:
        return nothing, nothing
    count = layer_tokens(layer, setting) * layer.experts_per_token
    group, weights = setting.groups.tensor, count * setting.compute_bytes
    inside, outside = setting.whole_tokens_inside, ~setting.sequence_parallel
    gathered = group.all_gather(weights)
    forward = np.where(inside & ~outside, gathered + group.all_gather(count * _CHOSEN_BYTES), 0.0)
    summed = np.where(outside, group.all_reduce(weights), group.reduce_scatter(weights))
    return forward, np.where(inside, summed, np.where(outside, gathered, 0.0))


def _last(layer: LayerWorkload) -> int:
    """Return how many reductions end the layer, so that backward needs nothing of them."""
    return sum(gemm.ends_block and gemm.split == "inner" for gemm in layer.gemms)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """Exposed seconds of reducing a tensor once, [configurations, 1].

    Under sequence parallelism rows are gathered before a product, and sums scattered after the next
    one; `summed` are scattered in backward. Else all of it is one all_reduce, and nothing gathered.
    """

    gathered: Floats
    scattered: Floats
    summed: Floats

    @property
    def forward(self) -> Floats:
        return self.gathered + self.scattered

    @property
    def backward(self) -> Floats:
        return self.gathered + self.summed


def _round(elements: Floats, setting: Setting) -> _Round:
    """Return the exposed seconds of a round of `elements`, such as [tokens, hidden], n bytes.

    Where products keep what they read in 8 bits, it is gathered in 8. Where rows are copied beside,
    memory moves

        gather    2 n where b > 1    2 n / t beside products
        scatter   2 n                n + n / t

    with b sequences in a micro-batch and t ranks. Collectives join and divide the first dimension
    of [batch, sequence, hidden] alone: a copy joins what they bring along the second, and one
    divides what they take, each of which reads n and writes n. One sequence's rows are in order as
    they come (torch since 2.11). Beside products, in pieces, a rank copies its own n / t for others
    to read, and reads n of partial sums to write n / t. Inputs' gradients are sums over several
    products, which torch does not scatter in pieces.

    Source: torch 2.13 `distributed/_functional_collectives.py` (`all_gather_single`,
    `reduce_scatter_single`), `_utils.py` (`_maybe_view_chunk_cat`),
    `distributed/_symmetric_memory/__init__.py` (`_pipelined_multi_all_gather_and_consume`,
    `_fused_matmul_reduce_scatter_impl`), `_inductor/fx_passes/micro_pipeline_tp.py`
    (`_find_producer_matmul`).
    """
    message, group = elements * setting.compute_bytes, setting.groups.tensor
    split, beside = setting.sequence_parallel, setting.overlaps_tensor_parallel
    copied = np.where(setting.copies_rows, message / setting.hardware.memory_bytes_per_second, 0.0)
    exposed = np.where(beside, 1.0 - _OVERLAPPED_RATIO, 1.0)
    narrow = 0.5 if setting.product_input_bytes == 1 else 1.0
    joins = np.where(beside, 2.0 / setting.tensor, 2.0 * (setting.micro_batch_size > 1.0))
    divides = np.where(beside, 1.0 + 1.0 / setting.tensor, 2.0)
    scatter = group.reduce_scatter(message)
    scattered = np.where(
        split, exposed * scatter + divides * copied, exposed * group.all_reduce(message)
    )
    in_pieces = ~split | setting.stack.overlaps_tensor_parallel
    return _Round(
        gathered=np.where(
            split, exposed * narrow * group.all_gather(message) + joins * copied, 0.0
        ),
        scattered=scattered,
        summed=np.where(in_pieces, scattered, scatter + 2.0 * copied),
    )


def _source_rounds(layer: LayerWorkload, setting: Setting) -> tuple[Floats, Floats]:
    """Return the exposed seconds of reducing what belongs to other parts' tokens, each way."""
    elements = np.zeros_like(setting.tokens)
    if not layer.sources:
        return elements, elements
    for source in layer.sources:
        elements = elements + source_tokens(source, setting) * source.reduced_width
    once = _round(elements, setting)
    return once.forward, once.backward


def _exchange_seconds(layer: LayerWorkload, setting: Setting) -> tuple[Floats, Floats]:
    """Return what context parallelism takes by passing keys round, and by exchanging heads."""
    ring = heads = np.zeros_like(setting.tokens)
    queries = layer_tokens(layer, setting)
    cores = [(layer.attention, queries)]
    cores.extend((source.attention, source_tokens(source, setting)) for source in layer.sources)
    for core, keys in cores:
        if core is not None:
            ring = ring + _ring_seconds(core, keys, setting)
            heads = heads + _head_exchange_seconds(core, queries, keys, setting)
    return ring, heads


def _ring_seconds(attention: AttentionCore, keys: Floats, setting: Setting) -> Floats:
    """Return seconds to pass the keys and values of `keys` tokens round the ring once.

    Source: Liu et al. 2023, arXiv:2310.01889 (ring attention).
    """
    width = attention.key_value_width / key_value_ranks(attention, setting)
    return setting.groups.context.ring_pass(keys * width * setting.compute_bytes)


def _merge_seconds(layer: LayerWorkload, setting: Setting) -> tuple[Floats, Floats]:
    """Return seconds to merge a ring's partial outputs in forward, and gradients in backward.

    Each of the c - 1 pieces after the first is added to an fp32 sum of what all queries have, which
    moves 12 bytes an element: partial and sum read, sum written. Assumed, not measured.
    """
    cores = [layer.attention, *(source.attention for source in layer.sources)]
    passes = (setting.context - 1.0) * layer_tokens(layer, setting) / setting.tensor
    per_element = _MERGED_BYTES / setting.hardware.memory_bytes_per_second
    outputs = sum(core.head_count * core.value_head_size for core in cores if core is not None)
    queries = sum(core.head_count * core.key_head_size for core in cores if core is not None)
    return passes * outputs * per_element, passes * queries * per_element


def _head_exchange_seconds(
    attention: AttentionCore, queries: Floats, keys: Floats, setting: Setting
) -> Floats:
    """Return seconds of the four all_to_alls that trade tokens for heads and back: Q, K, V, O.

    With fewer key-value heads than context-parallel ranks, each is sent to all that need it.
    Source: Jacobs et al. 2023, arXiv:2309.14509 (DeepSpeed-Ulysses).
    """
    key_size, value_size = attention.key_head_size, attention.value_head_size
    heads = attention.head_count / setting.tensor
    key_value_heads = attention.key_value_head_count / key_value_ranks(attention, setting)
    sent = np.maximum(key_value_heads, setting.context)

    def exchange(tokens: Floats, width: Floats) -> Floats:
        return setting.groups.context.all_to_all(tokens * width * setting.compute_bytes)

    asked = exchange(queries, heads * key_size) + exchange(queries, heads * value_size)
    return asked + exchange(keys, sent * key_size) + exchange(keys, sent * value_size)


def _expert_seconds(layer: LayerWorkload, setting: Setting) -> Floats:
    """Return seconds of dispatch and combine, one way; see the module."""
    if not layer.experts_per_token:
        return np.zeros_like(setting.tokens)
    hidden = layer_tokens(layer, setting) * layer.hidden_size * setting.compute_bytes
    whole = hidden * layer.experts_per_token * setting.expert_load_ratio
    split = setting.sequence_parallel | setting.has_own_experts
    once = setting.groups.expert.all_to_all(
        np.where(split, whole / setting.tensor, whole),
        copies=layer.experts_per_token if setting.job.deduplicated_dispatch else 1,
    )
    gather = setting.groups.split_expert.all_gather(whole * setting.expert_tensor / setting.tensor)
    return 2.0 * once + 2.0 * gather + setting.groups.own_expert.all_gather(hidden)


def _exchange_beside(layer: LayerWorkload, setting: Setting) -> tuple[Floats, Floats, Floats]:
    """Return seconds of exchanging counts, and of a CPU's operators forward and backward."""
    nothing = np.zeros_like(setting.tokens)
    if not layer.experts_per_token or setting.job.fixed_expert_tokens:
        return nothing, nothing, nothing
    counts = nothing
    if setting.job.stack is Stack.TORCH:
        expert_count = max(gemm.expert_count for gemm in layer.gemms)
        counts = counts + setting.groups.expert.all_to_all(_COUNT_BYTES * expert_count)
    each = setting.host_seconds_per_kernel if setting.host_is_device else 0.0
    own = np.where(setting.expert > 1.0, each, 0.0)
    return counts, EXCHANGE_FORWARD_OPERATORS * own, EXCHANGE_BACKWARD_OPERATORS * own
