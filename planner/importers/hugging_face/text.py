"""Decoder behind a tower of Hugging Face: `text_config`, of any type that is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.errors import UnsupportedModelError
from planner.importers.fields import Fields
from planner.schema.model import ModelGraph

# What configuration_llama.py and configuration_mistral.py fill in: released llava configurations
# leave it out.
_LLAMA_SIZES = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "vocab_size": 32000,
}
_SIZES_LEFT_OUT = {"llama": _LLAMA_SIZES, "mistral": {**_LLAMA_SIZES, "intermediate_size": 14336}}
_WITH_AN_ENCODER = frozenset({"t5", "mt5"})


def text_decoder(
    fields: Fields,
    name: str,
    *,
    default: str = "llama",
    defaults: Mapping[str, Any] | None = None,
) -> ModelGraph:
    """Return the decoder of `text_config`, of the type `default` unless it says otherwise.

    `defaults` are what the class of the whole fills in there.

    Raises:
        UnsupportedModelError: if its type cannot be read, or has towers of its own.
    """
    from planner.importers.hugging_face.readers import READERS  # noqa: PLC0415  (they name who asks here)

    given = fields.section("text_config").text("model_type") or default
    reader = READERS.get(given)
    if reader is None or reader.reads_head:
        raise _unread(fields, given)
    sizes = {**_SIZES_LEFT_OUT.get(given, {}), **(defaults or {}), "model_type": given}
    section = fields.section("text_config", aliases=reader.aliases, defaults=sizes)
    graph = reader.read(section, name)
    if graph.tower_block_count and given not in _WITH_AN_ENCODER:
        raise _unread(fields, given)
    return graph


def _unread(fields: Fields, given: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        "is not a decoder that can be read behind a tower",
        field=f"{fields.spelling('text_config')}.model_type",
        value=given,
        remedy="`meshwright models` lists the types that are read; or trace the model with "
        "`meshwright trace --transformers config.json`, or describe it as a model graph",
    )
