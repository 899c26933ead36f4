"""Hugging Face config.json -> model graph, one reader per `model_type`.

A config.json may leave out what equals the default of its configuration class (transformers 5.23),
and readers fill that in. Width, depth, heads, feed-forward and vocabulary must be stated: the
defaults there describe some 7B model, which nobody who forgot a key means. A key that is not looked
at is told unless nothing depends on it. No code of the model's repository is ever run.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from planner.errors import UnsupportedModelError
from planner.importers.fields import Fields
from planner.importers.hugging_face.activation import with_activation
from planner.importers.hugging_face.beside import with_unread
from planner.importers.hugging_face.heads import with_decoder_head
from planner.schema.document import document_error
from planner.schema.model import ModelGraph

if TYPE_CHECKING:
    from planner.importers.hugging_face.readers import Reader

_LENGTH_LIMIT = 64  # nothing longer is near a model type
_STORED = "quantization_config"
_LOOKED_AT = frozenset({"model_type", "pruned_heads", _STORED, f"text_config.{_STORED}"})


@cache
def _readers() -> Mapping[str, Reader]:
    """Return the readers, which only who reads a config.json pays for."""
    from planner.importers.hugging_face.readers import READERS  # noqa: PLC0415  (8 ms)

    return READERS


def model_types() -> tuple[str, ...]:
    """Return the values of `model_type` that can be read, sorted."""
    return tuple(sorted(_readers()))


def graph_from_huggingface(config: Mapping[str, Any], *, name: str) -> ModelGraph:
    """Return the model graph that a config.json describes.

    Raises:
        UnsupportedModelError: if `model_type` is unknown.
        DocumentError: if a field is missing or has a bad value.
    """
    model_type = config.get("model_type")
    reader = _readers().get(model_type) if isinstance(model_type, str) else None
    if reader is None:
        from difflib import get_close_matches  # noqa: PLC0415  (20 ms: only errors need it)

        near = get_close_matches(str(model_type)[:_LENGTH_LIMIT], _readers(), n=3)
        hint = f"did you mean {', '.join(near)}? " if near else ""
        code = ", and the code that auto_map names is never run" if "auto_map" in config else ""
        raise UnsupportedModelError(
            f"is not a model type that can be read{_missing(model_type)}{code}",
            field="model_type",
            value=model_type,
            remedy=f"{hint}`meshwright models` lists the {len(_readers())} types that can be; or "
            "trace its class with `meshwright trace --transformers config.json`, or describe it as "
            "a model graph",
        )
    fields = Fields(config, aliases=reader.aliases)
    try:
        graph = reader.read(fields, name)
    except ValidationError as error:  # sizes, each fine alone, whose product is not
        raise document_error(error, source=name) from None
    graph = _with_storage(with_activation(graph, config), config)
    graph = (
        graph if reader.reads_head else with_decoder_head(graph, Fields(config, asked=fields.asked))
    )
    asked = fields.asked | _LOOKED_AT
    title = f"a {model_type} config.json"
    return with_unread(graph, config, asked, title=title, whole=_LOOKED_AT)


def _with_storage(graph: ModelGraph, config: Mapping[str, Any]) -> ModelGraph:
    """Return the graph with a line on weights that are stored in fewer bits than they train in.

    Raises:
        UnsupportedModelError: if heads are pruned away, whose layers then differ.
    """
    if config.get("pruned_heads"):
        raise UnsupportedModelError(
            "leaves some layers fewer heads, which is not read",
            field="pruned_heads",
            value=str(config["pruned_heads"])[:_LENGTH_LIMIT],
            remedy="trace the model with `meshwright trace --transformers config.json`",
        )
    text = config.get("text_config")
    inner = text.get(_STORED) if isinstance(text, Mapping) else None
    stored = config.get(_STORED) or inner
    if not isinstance(stored, Mapping):
        return graph
    method = str(stored.get("quant_method", "of no method"))[:_LENGTH_LIMIT]
    said = (
        f"quantization_config ({method}) is how the weights are stored, and not priced: a base in "
        "4 or 8 bits under adapters is the job's adapters.base_bits"
    )
    return graph.model_copy(update={"assumptions": (*graph.assumptions, said)})


def _missing(model_type: object) -> str:
    """Return what no part of a graph stands for, where that is known of a type."""
    from planner.importers.hugging_face.missing import MISSING  # noqa: PLC0415  (only errors need it)

    what = MISSING.get(model_type) if isinstance(model_type, str) else None
    return "" if what is None else f": a model graph has no part for {what}"
