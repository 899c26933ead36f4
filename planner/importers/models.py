"""Models by name, by file or by fields -> model graph."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from planner.errors import DocumentError, InputError
from planner.importers.checkpoint_files import known_file
from planner.importers.fields import LAYER_LIMIT, require_at_most, require_divides
from planner.importers.hugging_face.config_json import graph_from_huggingface
from planner.schema.document import parse_fields, read_fields
from planner.schema.model import (
    CrossAttention,
    GroupedQueryAttention,
    MixtureFeedForward,
    ModelGraph,
)

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_NAME_LENGTH_LIMIT = 200
_DEFAULT_NAME = "model"
_SUFFIXES = {".json", ".yaml", ".yml", ".pt2"}
_CLOSED = frozenset(
    {".bin", ".ckpt", ".gguf", ".h5", ".pickle", ".pkl", ".pt", ".pth", ".safetensors"}
)


def _models() -> Traversable:
    from importlib import resources  # noqa: PLC0415  (20 ms: needed once there is a request)

    return resources.files("profiles") / "models"


@cache
def model_names() -> tuple[str, ...]:
    """Return the names of the shapes that ship with the planner, sorted."""
    shelf = _models()
    return tuple(
        sorted(
            item.name.removesuffix(".json")
            for item in shelf.iterdir()
            if item.name.endswith(".json")
        )
    )


def read_model(reference: str) -> tuple[JsonValue, ModelGraph]:
    """Return what to record of, and the graph of, the model that a name or a path stands for.

    A path leads to a file, or to a directory with a config.json. A known name wins over a file.

    Raises:
        InputError: if it is neither a known name nor a readable, valid document.
    """
    if reference in model_names():
        content = (_models() / f"{reference}.json").read_bytes()
        return reference, model_from_fields(parse_fields(content, source=reference), name=reference)
    path = _existing_path(reference)
    if path.is_dir() and (path / "config.json").is_file():
        path /= "config.json"
    if path.suffix == ".pt2":
        from planner.importers.exported_program import graph_from_archive  # noqa: PLC0415

        graph = graph_from_archive(path, name=path.stem[:_NAME_LENGTH_LIMIT] or _DEFAULT_NAME)
        return graph.model_dump(mode="json"), graph
    if path.suffix in _CLOSED:
        raise InputError(
            "is a file of weights or pickles, which are never opened",
            field="model",
            value=reference,
            remedy="give the config.json beside it, or what torch.export.save wrote (.pt2)",
        )
    fields = read_fields(path)
    name = path.parent.resolve().name if path.stem == "config" else path.stem
    return fields, model_from_fields(fields, name=name)


def model_from_fields(fields: Mapping[str, Any], *, name: str) -> ModelGraph:
    """Return the graph in `fields`: a Hugging Face configuration, or our own document.

    Raises:
        InputError: naming the bad field, its value and the remedy.
    """
    name = name[:_NAME_LENGTH_LIMIT] or _DEFAULT_NAME
    if "model_type" in fields:
        return graph_from_huggingface(fields, name=name)
    if "runs" in fields:
        graph = ModelGraph.from_fields(fields, source=name)
        _require_possible(graph)
        return graph
    if "_class_name" in fields:
        from planner.importers import diffusers_transformers  # noqa: PLC0415  (few models are)

        if fields["_class_name"] in diffusers_transformers.class_names():
            return diffusers_transformers.graph_from_diffusers(fields, name=name)
    seen = known_file(fields)
    raise DocumentError(
        "is required" if seen is None else f"is required: this seems to be {seen.what}",
        field="model_type",
        remedy="give a Hugging Face config.json, or a model graph with runs of blocks"
        if seen is None
        else seen.remedy,
    )


def _existing_path(reference: str) -> Path:
    """Return the path that `reference` is, unless it rather reads as a mistaken name.

    Raises:
        InputError: if no file can have this name, or none has and it looks like a model's name.
    """
    path = Path(reference)
    try:
        exists = path.exists()
    except (OSError, ValueError):  # longer than any file's name, or no name at all
        exists, path = False, Path()
    if "\0" in reference:
        path = Path()
    if exists or path.suffix in _SUFFIXES or len(path.parts) > 1:
        return path
    from difflib import get_close_matches  # noqa: PLC0415  (20 ms: only errors need it)

    near = get_close_matches(reference[:_NAME_LENGTH_LIMIT], model_names(), n=3)
    hint = f"did you mean {', '.join(near)}? " if near else ""
    raise InputError(
        "is neither a known model nor a file",
        field="model",
        value=reference,
        remedy=f"{hint}list names with `meshwright models`, or give the path of a config.json",
    )


def _require_possible(graph: ModelGraph) -> None:
    """Raise if the numbers of a model graph, each fine alone, do not go together.

    Raises:
        DocumentError: naming both fields.
    """
    require_at_most("runs", graph.block_count, limit_name="blocks", limit=LAYER_LIMIT)
    for index, run in enumerate(graph.runs):
        feed_forward = run.block.feed_forward
        for name in ("attention", "cross_attention"):
            attention = getattr(run.block, name)
            if isinstance(attention, GroupedQueryAttention | CrossAttention):
                require_divides(
                    f"runs.{index}.block.{name}.key_value_head_count",
                    attention.key_value_head_count,
                    "head_count",
                    attention.head_count,
                )
        if isinstance(feed_forward, MixtureFeedForward):
            require_at_most(
                f"runs.{index}.block.feed_forward.experts_per_token",
                feed_forward.experts_per_token,
                limit_name="expert_count",
                limit=feed_forward.expert_count,
            )
