"""Ends: what entries and exits of runs ask, all of it priced with the embedding.

Patch embeddings, final norms of towers and projections are small beside a block, and no cut can
set them apart. The embedding's stage therefore pays for all of them, exits included.
"""

from __future__ import annotations

from planner.schema.model import BlockRun, Entry, ModelGraph, RunPart
from planner.workload.activations import (
    embedding_activations,
    end_activations,
    end_norm_activations,
)
from planner.workload.layer import ElementwiseTraffic, Gemm, SourceWorkload

_NORM_PASSES = 4  # as in a block
_ACTIVATION_PASSES = 2  # between two products: read, write
_LOOKUP_PASSES = 2


def end_sources(graph: ModelGraph) -> tuple[SourceWorkload, ...]:
    """Return what the embedding does for the tokens of towers, and in entries and exits."""
    sources: list[SourceWorkload] = []
    first_runs = {tower[0] for tower in graph.towers()}
    for index, run in enumerate(graph.runs):
        if index in first_runs and run.reads_token_embeddings(graph.hidden_size):
            sources.append(_lookup(run, graph))
        for end in (run.entry, run.exit):
            if end is not None:
                sources.extend(_end(end, run))
    return tuple(sources)


def head_sources(graph: ModelGraph) -> tuple[SourceWorkload, ...]:
    """Return what stands between the final norm and the logits."""
    before = graph.before_head
    return () if before is None else tuple(_end(before, graph.runs[-1]))


def _lookup(run: BlockRun, graph: ModelGraph) -> SourceWorkload:
    """Return the lookup of a text tower's tokens in the model's token embedding."""
    return SourceWorkload(
        tokens_per_sequence=run.tokens_per_sequence,
        reduced_width=graph.hidden_size,
        gemms=(),
        attention=None,
        elementwise=ElementwiseTraffic(
            replicated=float(_LOOKUP_PASSES * graph.hidden_size), sharded=0.0, kernel_count=1
        ),
        activations=embedding_activations(),
    )


def _end(end: Entry, run: BlockRun) -> list[SourceWorkload]:
    sources = [
        SourceWorkload(
            tokens_per_sequence=product.tokens_per_sequence or _tokens(run),
            reduced_width=0,
            gemms=(
                Gemm(
                    name=f"end{index}",
                    inner_size=product.inner_size,
                    outer_size=product.outer_size,
                    split="none",
                ),
            ),
            attention=None,
            elementwise=ElementwiseTraffic(
                replicated=float(_ACTIVATION_PASSES * product.outer_size),
                sharded=0.0,
                kernel_count=1,
            ),
            activations=end_activations(end, index),
        )
        for index, product in enumerate(end.products)
    ]
    if end.norm_widths:
        sources.append(_norms(end, run))
    return sources


def _norms(end: Entry, run: BlockRun) -> SourceWorkload:
    return SourceWorkload(
        tokens_per_sequence=_tokens(run),
        reduced_width=0,
        gemms=(),
        attention=None,
        elementwise=ElementwiseTraffic(
            replicated=float(_NORM_PASSES * sum(end.norm_widths)),
            sharded=0.0,
            kernel_count=len(end.norm_widths),
        ),
        activations=end_norm_activations(end),
    )


def _tokens(run: BlockRun) -> int | None:
    return run.tokens_per_sequence if run.part is RunPart.ENCODER else None
