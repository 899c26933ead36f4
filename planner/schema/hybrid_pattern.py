"""Hybrid pattern: the layers of a hybrid decoder by the letters that Megatron-LM has for them.

What mixes and what feeds forward are layers of their own there, so that a block has one letter or
two. Source: `megatron/core/models/hybrid/hybrid_layer_allocation.py` of Megatron-LM 0.19.2.
"""

from __future__ import annotations

from planner.schema.model import (
    Attention,
    Block,
    DenseFeedForward,
    GatedDeltaMixer,
    GroupedQueryAttention,
    LatentAttention,
    MixtureFeedForward,
    ModelGraph,
    NoAttention,
    NoFeedForward,
    RunPart,
    StateSpaceMixer,
)


def block_letters(graph: ModelGraph) -> tuple[str, ...] | None:
    """Return the letters of each block of the decoder, None where one has no letters."""
    letters: list[str] = []
    for run in graph.runs:
        if run.part is RunPart.DECODER:
            own = _letters(run.block)
            if own is None:
                return None
            letters += [own] * run.block_count
    return tuple(letters)


def _letters(block: Block) -> str | None:
    mixed, fed = _mixing(block), _feeding(block)
    plain = block.cross_attention is None and block.residual_stream_count == 1
    return None if mixed is None or fed is None or not plain else mixed + fed


def _mixing(block: Block) -> str | None:
    if not isinstance(block.attention, NoAttention):
        return None if block.mixer is not None else _attending(block.attention)
    if isinstance(block.mixer, StateSpaceMixer):
        return "M"
    return "G" if isinstance(block.mixer, GatedDeltaMixer) else None


def _attending(attention: Attention) -> str | None:
    if isinstance(attention, LatentAttention):
        return "+" if attention.index is None else "D"
    return "*" if isinstance(attention, GroupedQueryAttention) else None


def _feeding(block: Block) -> str | None:
    feed_forward = block.feed_forward
    if isinstance(feed_forward, NoFeedForward):
        return ""
    if isinstance(feed_forward, DenseFeedForward):
        return "-"
    return "E" if isinstance(feed_forward, MixtureFeedForward) else None
