"""Decoder: blocks and the fields that all Hugging Face decoders share -> model graph."""

from __future__ import annotations

from collections.abc import Sequence

from planner.importers.fields import POSITION_LIMIT, Fields
from planner.schema.model import Block, ModelGraph

NAME_LENGTH_LIMIT = 200


def decoder(
    fields: Fields,
    name: str,
    blocks: Sequence[Block],
    *,
    positions: int,
    tied: bool = False,
) -> ModelGraph:
    """Return a rotary RMSNorm decoder of `blocks`.

    `positions` and `tied` are the type's defaults of `max_position_embeddings` and
    `tie_word_embeddings`. `name` carries the model type behind a colon: `qwen2:my-model`.

    Raises:
        DocumentError: if a field is bad, or the blocks fall into too many runs.
    """
    architecture, _, shown = name.partition(":")
    return ModelGraph.from_fields(
        {
            "name": shown[:NAME_LENGTH_LIMIT] or architecture,
            "architecture": architecture,
            "hidden_size": fields.size("hidden_size"),
            "vocabulary_size": fields.size("vocab_size"),
            "tied_embeddings": fields.flag("tie_word_embeddings", tied),
            "maximum_sequence_length": fields.size(
                "max_position_embeddings", positions, limit=POSITION_LIMIT
            ),
            "runs": runs(blocks),
        },
        source=shown,
    )
