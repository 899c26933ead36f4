"""Decoder: blocks, and the fields that all Hugging Face decoders share, as one model graph."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from planner.importers.fields import POSITION_LIMIT, Fields
from planner.schema.model import Block, BlockRun, ModelGraph


def rotary_decoder(
    fields: Fields,
    name: str,
    blocks: Sequence[Block],
    *,
    positions: int,
    tied: bool = False,
    width: str = "hidden_size",
) -> ModelGraph:
    """Return a decoder of `blocks` with rotary positions, its final norm that of the blocks.

    `positions` and `tied` are the type's defaults of `max_position_embeddings` and
    `tie_word_embeddings`; `width` is the field of the hidden size.

    Raises:
        DocumentError: if a field is bad, or the blocks fall into too many runs.
    """
    return ModelGraph.from_fields(
        {
            "name": name,
            "architecture": fields.text("model_type") or "decoder",
            "hidden_size": fields.size(width),
            "vocabulary_size": fields.size("vocab_size"),
            "final_norm": blocks[0].norm,
            "tied_embeddings": fields.flag("tie_word_embeddings", tied),
            "maximum_sequence_length": fields.size(
                "max_position_embeddings", positions, limit=POSITION_LIMIT
            ),
            "final_logit_softcapping": fields.optional_number("final_logit_softcapping"),
            "runs": runs(blocks),
        },
        source=name,
    )


def runs(blocks: Sequence[Block]) -> tuple[BlockRun, ...]:
    """Return consecutive equal blocks as runs."""
    return tuple(
        BlockRun(block=block, block_count=len(list(same))) for block, same in groupby(blocks)
    )
