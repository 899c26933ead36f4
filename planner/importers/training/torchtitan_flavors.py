"""torchtitan's flavors: the blocks and the width of the models that its files name.

Source: torchtitan 0.2.2, `torchtitan/models/*/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.errors import DocumentError
from planner.schema.model import ModelGraph

_SIZES = {
    ("llama3", "8B"): (32, 4096),
    ("llama3", "70B"): (80, 8192),
    ("llama3", "405B"): (126, 16384),
    ("llama4", "17bx16e"): (48, 5120),
    ("llama4", "17bx128e"): (48, 5120),
    ("deepseek_v3", "16B"): (27, 2048),
    ("deepseek_v3", "236B"): (60, 5120),
    ("deepseek_v3", "671B"): (61, 7168),
    ("qwen3", "0.6B"): (28, 1024),
    ("qwen3", "1.7B"): (28, 2048),
    ("qwen3", "4B"): (36, 2560),
    ("qwen3", "8B"): (36, 4096),
    ("qwen3", "14B"): (40, 5120),
    ("qwen3", "32B"): (64, 5120),
    ("qwen3", "30B-A3B"): (48, 2048),
    ("qwen3", "235B-A22B"): (94, 4096),
}


def family_in(text: str) -> str:
    """Return the family that a function or a file of torchtitan's is named after, '' if none is."""
    return next((family for family, _ in _SIZES if family in text), "")


def require_flavor(model: Mapping[str, Any], graph: ModelGraph) -> list[str]:
    """Return a line where a flavor could not be compared with the model that it is used with.

    Raises:
        DocumentError: if it is that of another model.
    """
    flavor = model.get("flavor")
    if flavor is None:
        return []
    name = str(model.get("name", "llama3"))
    size = _SIZES.get((name, str(flavor)))
    if size is None:
        return [f"model.flavor {flavor} of {name or 'a model'} is not compared with the one given"]
    if size != (graph.block_count, graph.hidden_size):
        raise DocumentError(
            f"has {size[0]} blocks of {size[1]}, and the model given {graph.block_count} of "
            f"{graph.hidden_size}",
            field="model.flavor",
            value=flavor,
            remedy="give the model that the file is for",
        )
    return []
