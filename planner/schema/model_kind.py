"""Model kind: what a model is, by what it reads, how its tokens see, and its head."""

from __future__ import annotations

from enum import StrEnum

from planner.schema.model import Block, GroupedQueryAttention, ModelGraph, RunPart


class ModelKind(StrEnum):
    """What a model is, by its blocks and its head, in a phrase."""

    DECODER = "a decoder that predicts tokens"
    CLASSIFIER = "a classifier"
    HEADLESS = "a model without a head"
    ENCODER = "an encoder, whose tokens see those after them"
    ENCODER_DECODER = "an encoder-decoder"
    SIGNALS = "a model that reads no tokens"
    TRACED = "a traced module"


def model_kind(graph: ModelGraph) -> ModelKind:
    """Return what the model is: by what it reads first, then how its tokens see, then its head."""
    if graph.is_measured:
        return ModelKind.TRACED
    if graph.vocabulary_size == 0:
        return ModelKind.SIGNALS
    decoder = [run.block for run in graph.runs if run.part is RunPart.DECODER]
    if any(block.cross_attention is not None for block in decoder):
        return ModelKind.ENCODER_DECODER
    return ModelKind.ENCODER if any(map(sees_ahead, decoder)) else _decoder_kind(graph)


def _decoder_kind(graph: ModelGraph) -> ModelKind:
    if graph.logit_count == graph.vocabulary_size:
        return ModelKind.DECODER
    return ModelKind.CLASSIFIER if graph.logit_count else ModelKind.HEADLESS


def scores_sequences(graph: ModelGraph) -> bool:
    """Return whether the model is a decoder with a head of one column: a reward model."""
    return model_kind(graph) is ModelKind.CLASSIFIER and graph.logit_count == 1


def head_columns(graph: ModelGraph) -> int:
    """Return what the head puts out for a token, or for a whole sequence where it has one there."""
    before = graph.before_head
    if graph.logit_count or before is None or not before.products:
        return graph.logit_count
    return before.products[-1].outer_size


def sees_ahead(block: Block) -> bool:
    """Return whether tokens attend to those after them."""
    attention = block.attention
    return isinstance(attention, GroupedQueryAttention) and not attention.causal
