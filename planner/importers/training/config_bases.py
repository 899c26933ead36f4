"""Bases of a configuration: files that it builds on, put under what it says itself.

`defaults: grpo.yaml` of NeMo-RL is a file beside it. What stands in a folder of a framework's
own, as
Hydra's groups do, is not here, and a fragment is not read as if it were whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.errors import DocumentError
from planner.schema.document import read_fields

_WORD = "defaults"
_SELF = "_self_"
_DEPTH_LIMIT = 8


def with_bases(fields: Mapping[str, Any], folder: Path | None, depth: int = 0) -> Mapping[str, Any]:
    """Return the fields over those of the files that they build on.

    Raises:
        DocumentError: if one of these is not here.
    """
    given = fields.get(_WORD)
    names = given if isinstance(given, list) else [] if given is None else [given]
    whole: dict[str, Any] = {}
    for name in (one for one in names if one != _SELF):
        file = folder / name if folder is not None and isinstance(name, str) else None
        if file is None or not file.is_file() or depth > _DEPTH_LIMIT:
            raise DocumentError(
                "builds on a file that is not here, so that most of its values are not known",
                field=_WORD,
                value=name,
                remedy="give the whole configuration, as the framework prints it at its start",
            )
        whole = _over(with_bases(read_fields(file), file.parent, depth + 1), whole)
    own = {name: value for name, value in fields.items() if name != _WORD}
    return _over(own, whole) if names else fields


def _over(above: Mapping[str, Any], below: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        before = merged.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            merged[name] = _over(value, before)
        else:
            merged[name] = value
    return merged
