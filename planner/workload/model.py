"""Model workload: the whole chain of a model graph, ready to be priced."""

from __future__ import annotations

from planner.schema.model import Block, MixtureFeedForward, ModelGraph
from planner.workload.activations import (
    block_activations,
    embedding_activations,
    head_activations,
)
from planner.workload.flops import attention_core, block_gemms, elementwise_traffic
from planner.workload.layer import (
    ElementwiseTraffic,
    Gemm,
    HeadWorkload,
    LayerWorkload,
    ModelWorkload,
)
from planner.workload.parameters import block_parameters, embedding_parameters, head_parameters
from planner.workload.selection import recomputed_ratio


def model_workload(graph: ModelGraph) -> ModelWorkload:
    """Return what `graph` asks per token, layer by layer."""
    embedding = _embedding(graph)
    runs = tuple(
        (_block(run.block, graph.hidden_size, name=f"run{index}"), run.block_count)
        for index, run in enumerate(graph.runs)
    )
    head = _head(graph)
    count = embedding.parameters.total() + head.layer.parameters.total()
    count += sum(layer.parameters.total() * blocks for layer, blocks in runs)
    return ModelWorkload(embedding=embedding, runs=runs, head=head, parameter_count=count)


def _block(block: Block, hidden_size: int, *, name: str) -> LayerWorkload:
    gemms = block_gemms(block, hidden_size)
    feed_forward = block.feed_forward
    chosen = feed_forward.experts_per_token if isinstance(feed_forward, MixtureFeedForward) else 0
    return LayerWorkload(
        name=name,
        hidden_size=hidden_size,
        parameters=block_parameters(block, hidden_size),
        gemms=gemms,
        attention=attention_core(block.attention),
        elementwise=elementwise_traffic(block, hidden_size),
        activations=block_activations(block, hidden_size),
        selective_recompute_ratio=recomputed_ratio(gemms),
        experts_per_token=chosen,
    )


def _embedding(graph: ModelGraph) -> LayerWorkload:
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
    )


def _head(graph: ModelGraph) -> HeadWorkload:
    """Return the final norm, the LM head and the loss.

    The loss keeps 12 bytes per logit at its peak: the 16-bit logits, their fp32 copy, the fp32
    log-softmax, and its gradient in both widths take turns (measured on fake tensors: 12 S b V).
    """
    product = Gemm(
        name="head",
        inner_size=graph.hidden_size,
        outer_size=graph.vocabulary_size,
        split="outer",
    )
    layer = LayerWorkload(
        name="head",
        hidden_size=graph.hidden_size,
        parameters=head_parameters(graph),
        gemms=(product,),
        attention=None,
        elementwise=ElementwiseTraffic(
            replicated=4.0 * graph.hidden_size,
            sharded=6.0 * graph.vocabulary_size,
            kernel_count=8,
        ),
        activations=head_activations(graph.hidden_size, graph.final_norm),
        selective_recompute_ratio=0.0,
    )
    return HeadWorkload(
        layer=layer,
        vocabulary_size=graph.vocabulary_size,
        logits_bytes_per_element=12.0,
        tied_parameter_count=(
            graph.vocabulary_size * graph.hidden_size if graph.tied_embeddings else 0
        ),
    )
