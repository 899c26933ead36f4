"""Model workload: the whole chain of a model graph, ready to be priced."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from planner.schema.model import (
    Block,
    CrossAttention,
    MixtureFeedForward,
    ModelGraph,
    NoAttention,
)
from planner.workload.activations import (
    block_activations,
    embedding_activations,
    head_activations,
    source_activations,
)
from planner.workload.again import run_again_of
from planner.workload.chain import boundaries
from planner.workload.elementwise import elementwise_traffic, source_traffic
from planner.workload.ends import end_sources, head_sources
from planner.workload.flops import (
    attention_core,
    block_gemms,
    cross_attentions,
    source_gemms,
)
from planner.workload.layer import (
    Boundary,
    ElementwiseTraffic,
    Gemm,
    HeadWorkload,
    LayerWorkload,
    ModelWorkload,
    SourceWorkload,
)
from planner.workload.measured import measured_end, measured_layer
from planner.workload.parameters import block_parameters, embedding_parameters, head_parameters
from planner.workload.selection import recomputed_ratio

_KEPT = 16


@lru_cache(maxsize=_KEPT)
def model_workload(graph: ModelGraph, *, run_again: frozenset[str] = frozenset()) -> ModelWorkload:
    """Return what `graph` asks per token, layer by layer.

    `run_again` names parts of blocks that keep nothing for backward, whatever is checkpointed; that
    they are run again is not counted.

    Runs alike in block, width, tokens and boundary, as alternating ones are, share one workload,
    named for the first of them. The last few are kept: answers about changed jobs ask for the same.
    """
    embedding = _embedding(graph)
    runs = _runs(graph, run_again)
    head = _head(graph)
    count = embedding.parameters.total() + head.layer.parameters.total()
    count += sum(layer.parameters.total() * blocks for layer, blocks in runs)
    return ModelWorkload(embedding=embedding, runs=runs, head=head, parameter_count=count)


def _runs(graph: ModelGraph, run_again: frozenset[str]) -> tuple[tuple[LayerWorkload, int], ...]:
    known: dict[tuple[object, int, int | None, Boundary], LayerWorkload] = {}
    runs = []
    for index, (run, boundary) in enumerate(zip(graph.runs, boundaries(graph), strict=True)):
        width, tokens = run.width(graph.hidden_size), run.tokens_per_sequence
        kind = (run.measured or run.block, width, tokens, boundary)
        if kind not in known:
            name = f"run{index}"
            if run.measured is None:
                layer = _block(run.block, width, name=name, run_again=run_again)
            else:
                layer = measured_layer(run.measured, name=name, hidden_size=width)
            known[kind] = replace(layer, tokens_per_sequence=tokens, boundary=boundary)
        runs.append((known[kind], run.block_count))
    return tuple(runs)


def _block(
    block: Block, hidden_size: int, *, name: str, run_again: frozenset[str]
) -> LayerWorkload:
    attention = block.attention
    own = None if isinstance(attention, CrossAttention | NoAttention) else attention
    gemms = block_gemms(block, hidden_size)
    feed_forward = block.feed_forward
    chosen = feed_forward.experts_per_token if isinstance(feed_forward, MixtureFeedForward) else 0
    return LayerWorkload(
        name=name,
        hidden_size=hidden_size,
        parameters=block_parameters(block, hidden_size),
        gemms=gemms,
        attention=None if own is None else attention_core(own),
        elementwise=elementwise_traffic(block, hidden_size),
        activations=block_activations(block, hidden_size, run_again=run_again),
        selective_recompute_ratio=recomputed_ratio(gemms),
        experts_per_token=chosen,
        sources=tuple(_source(cross) for cross in cross_attentions(block)),
        again=run_again_of(block, hidden_size, run_again),
    )


def _source(cross: CrossAttention) -> SourceWorkload:
    """Return what a cross-attention does for the tokens that it reads."""
    gemms = source_gemms(cross)
    return SourceWorkload(
        tokens_per_sequence=cross.source_tokens_per_sequence,
        reduced_width=cross.source_width,
        gemms=gemms,
        attention=attention_core(cross),
        elementwise=source_traffic(cross),
        activations=source_activations(cross),
        selective_recompute_ratio=recomputed_ratio(gemms),
    )


def _embedding(graph: ModelGraph) -> LayerWorkload:
    if graph.measured_embedding is not None:
        return measured_end(
            graph.measured_embedding, name="embedding", hidden_size=graph.hidden_size
        )
    positions = 2 if graph.learned_position_count else 0
    return LayerWorkload(
        name="embedding",
        hidden_size=graph.hidden_size,
        parameters=embedding_parameters(graph),
        gemms=(),
        attention=None,
        elementwise=ElementwiseTraffic(
            replicated=float((2 + positions) * graph.hidden_size), sharded=0.0, kernel_count=2
        ),
        activations=embedding_activations(),
        selective_recompute_ratio=0.0,
        sources=end_sources(graph),
    )


def _head(graph: ModelGraph) -> HeadWorkload:
    """Return the final norm, the LM head and the loss."""
    return HeadWorkload(
        layer=_head_layer(graph),
        vocabulary_size=graph.logit_count,
        tied_parameter_count=(
            graph.logit_count * graph.head_input_size if graph.tied_embeddings else 0
        ),
        caps_logits=graph.final_logit_softcapping is not None,
    )


def _head_layer(graph: ModelGraph) -> LayerWorkload:
    if graph.measured_head is not None:
        return measured_end(graph.measured_head, name="head", hidden_size=graph.hidden_size)
    product = Gemm(
        name="head",
        inner_size=graph.head_input_size,
        outer_size=graph.logit_count,
        split="outer",
        in_16_bits=True,
    )
    return LayerWorkload(
        name="head",
        hidden_size=graph.hidden_size,
        parameters=head_parameters(graph),
        gemms=(product,) if graph.logit_count else (),
        attention=None,
        elementwise=ElementwiseTraffic(
            replicated=0.0 if graph.final_norm is None else 4.0 * graph.hidden_size,
            sharded=(6.0 if graph.final_logit_softcapping is None else 12.0)
            * graph.logit_count,  # scale, tangent and scale read and write each once more
            kernel_count=8,
        ),
        activations=head_activations(graph.hidden_size, graph.final_norm),
        selective_recompute_ratio=0.0,
        token_ratio=graph.head_token_ratio,
        sources=head_sources(graph),
    )
