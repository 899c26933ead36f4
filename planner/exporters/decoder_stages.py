"""Decoder stages: which pipelines a target's stages of decoder layers can be.

torchtitan, nanotron and MaxText have the layers of one decoder, and Megatron counts them. A tower
before it, an encoder that it reads across, or a hybrid whose layers are halves of our blocks are
not in that count.
"""

from __future__ import annotations

from planner.exporters.draft import Draft, refusal
from planner.schema.hybrid_pattern import block_letters
from planner.schema.model import ModelGraph
from planner.schema.model_kind import ModelKind, model_kind
from planner.schema.strategy import Strategy

# Programs whose multimodal models keep the towers on the first stage, beside the embedding:
# `megatron/core/models/multimodal/llava_model.py` (`add_encoder`) of Megatron-LM 0.19.2.
_TOWERS_ON_THE_FIRST_STAGE = frozenset(
    {"megatron-lm", "megatron-bridge", "nemo", "verl-megatron", "nemo-rl-megatron"}
)
# Stages of a hybrid are cut by bars in `--hybrid-layer-pattern`, from Megatron-LM 0.16 on.
_HYBRID_STAGES = frozenset({"megatron-lm"})
# Programs that spread the layers of `hybrid_override_pattern` evenly, without virtual stages:
# `models/mamba/mamba_provider.py` of Megatron-Bridge 0.3.1, which names no other pattern, and
# `models/hybrid/hybrid_layer_allocation.py` (`select_pipeline_segment`) of Megatron-Core.
_EVEN_HYBRID_STAGES = frozenset({"megatron-bridge", "nemo", "nemo-rl-megatron"})
_NAMED_BLOCKS = frozenset({"torchtitan", "torchtitan-0.2", "nanotron", "maxtext"})
# `models/common/decoder.py` of torchtitan 0.3.0 refuses tied embeddings in a pipeline, and
# `models/qwen3/model/model.py` of 0.2.2 asserts that each stage has both.
_UNTIED_STAGES = frozenset({"torchtitan", "torchtitan-0.2"})


def pipeline_obstacle(graph: ModelGraph, target: str) -> str | None:
    """Return why the target has no pipeline of the model at all, None where it may have one."""
    if target not in _TOWERS_ON_THE_FIRST_STAGE | _NAMED_BLOCKS:
        return None
    if target in _NAMED_BLOCKS:
        return _one_decoders_obstacle(graph, target) or _layers_obstacle(graph, target)
    return _layers_obstacle(graph, target)


def _layers_obstacle(graph: ModelGraph, target: str) -> str | None:
    """Return why the program's stages are not of the model's blocks."""
    if graph.cross_sources():
        return (
            f"its stages are of one decoder, and the {graph.tower_block_count} encoder blocks of "
            f"{graph.name} are read across by its decoder"
        )
    cut = target in _HYBRID_STAGES | _EVEN_HYBRID_STAGES
    if graph.is_hybrid and (not cut or block_letters(graph) is None):
        return (
            f"its stages are of whole layers, of which {graph.name} has "
            f"{graph.decoder_layer_count} in {graph.block_count} blocks"
        )
    return None


def _one_decoders_obstacle(graph: ModelGraph, target: str) -> str | None:
    """Return why stages of blocks by name, from embedding to head, are not the model's."""
    if graph.tower_block_count and not graph.cross_sources():
        return (
            f"its stages are of decoder layers, and {graph.tower_block_count} of {graph.name}'s "
            f"{graph.block_count} blocks are of a tower before them"
        )
    kind = model_kind(graph)
    if kind not in {ModelKind.DECODER, ModelKind.ENCODER_DECODER}:
        return f"its stages are of a decoder that predicts tokens, and {graph.name} is {kind.value}"
    if graph.tied_embeddings and target in _UNTIED_STAGES:
        return f"its stages have weights of their own, and {graph.name} ties its embeddings"
    return None


def with_stages_that_it_has(draft: Draft) -> Draft:
    """Return the draft if the target can have its pipeline.

    Raises:
        InputError: if it has none of the model, or towers reach beyond the first stage.
    """
    strategy, graph = draft.strategy, draft.plan.model.resolved
    if strategy.virtual_stage_count == 1:
        return draft
    problem = pipeline_obstacle(graph, draft.target)
    if problem is None and decoder_counts(strategy, graph)[0] < 0:
        held = strategy.stages[0].block_count if strategy.stages else 0
        problem = (
            f"its first stage holds the whole tower, and the plan's holds {held} of "
            f"{graph.name}'s {graph.tower_block_count} tower blocks"
        )
    if problem is None and draft.target in _EVEN_HYBRID_STAGES:
        problem = _uneven_hybrid(strategy, graph)
    if problem is None:
        return draft
    raise refusal(
        draft,
        field="pipeline_parallel_degree",
        value=strategy.pipeline_parallel_degree,
        problem=problem,
        remedy="plan with limits.pipeline_parallel_degree 1",
    )


def _uneven_hybrid(strategy: Strategy, graph: ModelGraph) -> str | None:
    """Return why stages of as many layers each are not the plan's, None where they are."""
    letters = block_letters(graph) if graph.is_hybrid else None
    if letters is None:
        return None
    if strategy.virtual_degree > 1:
        return f"its hybrids have no virtual stages, and the plan has {strategy.virtual_degree}"
    rest = iter(letters)
    blocks = [stage.block_count for stage in strategy.stages or ()]
    layers = [sum(len(next(rest)) for _ in range(count)) for count in blocks]
    if len(set(layers)) == len(set(blocks)) == 1:
        return None
    listed = ", ".join(map(str, layers))
    return f"its stages have as many layers each, and the plan's of {graph.name} have {listed}"


def decoder_counts(strategy: Strategy, graph: ModelGraph) -> list[int]:
    """Return the decoder blocks of each virtual stage, the towers taken off the first."""
    counts = [stage.block_count for stage in strategy.stages or ()]
    counts[0] -= graph.tower_block_count
    return counts
