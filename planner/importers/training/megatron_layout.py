"""Megatron's layout language: `Et*3|(tt|)*29|L` as the blocks of each virtual stage.

`E` is the embedding, `t` a block, `m` a block of multi-token prediction, `L` the loss; `|` ends a
virtual stage, `*n` repeats what stands before it, and commas say nothing.

Source: `PipelineParallelLayerLayout.parse_str_to_list` of Megatron-LM 0.19.2.
"""

from __future__ import annotations

import re

from planner.errors import DocumentError

FLAG = "--pipeline-model-parallel-layout"
_GROUP = re.compile(r"\(([^()]+)\)\*(\d{1,4})")
_ITEM = re.compile(r"(.)\*(\d{1,4})")
_LENGTH_LIMIT = 2**16


def layout_counts(layout: str, pipeline: int) -> list[int]:
    """Return the blocks of each virtual stage, in the order of the chain.

    Raises:
        DocumentError: if it is not in the language, or not as many stages as ranks have.
    """
    text = layout.strip("'\"").replace(",", "")
    for pattern in (_GROUP, _ITEM):
        text = pattern.sub(lambda match: match[1] * int(match[2]), text[:_LENGTH_LIMIT])
    strange = sorted(set(text) - set("Etm|L"))
    if strange or len(text) > _LENGTH_LIMIT:
        raise DocumentError(
            f"has {strange[0]!r}, which is no layer" if strange else "is too long",
            field=FLAG,
            value=layout,
            remedy="write E, t, m and L, with | between virtual stages",
        )
    stages = text.split("|")
    if len(stages) % pipeline:
        raise DocumentError(
            f"has {len(stages)} virtual stages, which {pipeline} ranks do not divide",
            field=FLAG,
            value=layout,
            remedy="give every rank as many virtual stages",
        )
    if "m" in text:
        raise DocumentError(
            "has blocks of multi-token prediction, which are not modelled",
            field=FLAG,
            value=layout,
            remedy="leave m out to price the model without them",
        )
    return [stage.count("t") for stage in stages]
