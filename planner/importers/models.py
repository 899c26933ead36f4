"""Models by name, by file or by fields -> model graph."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from planner.errors import DocumentError, InputError
from planner.importers.huggingface import graph_from_huggingface
from planner.schema.document import parse_fields, read_fields
from planner.schema.model import ModelGraph


@cache
def model_names() -> tuple[str, ...]:
    """Return the names of the shapes that ship with the planner, sorted."""
    shelf = resources.files("profiles") / "models"
    return tuple(
        sorted(
            item.name.removesuffix(".json") for item in shelf.iterdir() if item.name[-5:] == ".json"
        )
    )


def read_model(reference: str) -> tuple[JsonValue, ModelGraph]:
    """Return what to record of, and the graph of, the model that a name or a path stands for.

    Raises:
        InputError: if it is neither a known name nor a readable, valid document.
    """
    if reference in model_names():
        content = (resources.files("profiles") / "models" / f"{reference}.json").read_bytes()
        return reference, model_from_fields(parse_fields(content, source=reference), name=reference)
    path = Path(reference)
    if not path.exists() and not path.suffix:
        near = get_close_matches(reference, model_names(), n=3)
        hint = f"did you mean {', '.join(near)}? " if near else ""
        raise InputError(
            "is neither a known model nor a file",
            field="model",
            value=reference,
            remedy=f"{hint}list names with `meshwright models`, or give the path of a config.json",
        )
    fields = read_fields(path)
    name = path.parent.resolve().name if path.stem == "config" else path.stem
    return fields, model_from_fields(fields, name=name or "model")


def model_from_fields(fields: Mapping[str, Any], *, name: str) -> ModelGraph:
    """Return the graph in `fields`: a Hugging Face configuration, or our own document.

    Raises:
        InputError: naming the bad field, its value and the remedy.
    """
    if "model_type" in fields:
        return graph_from_huggingface(fields, name=name)
    if "runs" in fields:
        return ModelGraph.from_fields(fields, source=name)
    raise DocumentError(
        "is required",
        field="model_type",
        remedy="give a Hugging Face config.json, or a model graph with runs of blocks",
    )
