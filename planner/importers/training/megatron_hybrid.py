"""Megatron's hybrid patterns: `M-M*-|M-M-` as the blocks of each virtual stage.

A letter is a layer, `|` ends a virtual stage, and what follows `/` predicts further tokens. Without
bars the layers are spread evenly over ranks. Source: `parse_hybrid_pattern` and
`select_pipeline_segment` of Megatron-LM 0.19.2,
`megatron/core/models/hybrid/hybrid_layer_allocation.py`.
"""

from __future__ import annotations

from planner.errors import DocumentError
from planner.schema.hybrid_pattern import block_letters
from planner.schema.model import ModelGraph

HYBRID_FLAGS = ("--hybrid-layer-pattern", "--hybrid-override-pattern")


def hybrid_counts(pattern: str, graph: ModelGraph, pipeline: int, *, flag: str) -> list[int]:
    """Return the blocks of each virtual stage, in the order of the chain.

    Raises:
        DocumentError: if the letters are not the model's, or stages end within its blocks.
    """
    letters = block_letters(graph)
    stages = _stages(pattern.strip("'\"").partition("/")[0], pipeline, flag)
    if letters is None or "".join(stages) != "".join(letters):
        own = "has no such letters" if letters is None else f"is {''.join(letters)}"
        raise DocumentError(
            f"is not the model, which {own}",
            field=flag,
            value=pattern,
            remedy="give the model that the file is for",
        )
    ends = [0]
    for own in letters:
        ends.append(ends[-1] + len(own))
    counts: list[int] = []
    done = 0
    for stage in stages:
        if done + len(stage) not in ends:
            raise DocumentError(
                f"ends a stage after layer {done + len(stage)}, between what mixes and what feeds "
                "forward, which are one block here",
                field=flag,
                value=pattern,
                remedy="cut before M, G, D, + or *",
            )
        counts.append(ends.index(done + len(stage)) - ends.index(done))
        done += len(stage)
    return counts


def _stages(main: str, pipeline: int, flag: str) -> list[str]:
    """Return the letters of each virtual stage.

    Raises:
        DocumentError: if the ranks do not divide stages or layers.
    """
    stages = main.split("|")
    whole = stages[0] if len(stages) == 1 else stages
    if len(whole) % pipeline:
        what = "layers" if len(stages) == 1 else "virtual stages"
        raise DocumentError(
            f"has {len(whole)} {what}, which {pipeline} ranks do not divide",
            field=flag,
            value=main,
            remedy="give every rank as many virtual stages, with | between them",
        )
    if len(stages) > 1:
        return stages
    each = len(main) // pipeline
    return [main[start : start + each] for start in range(0, len(main), each)]
