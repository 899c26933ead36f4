"""References between keys of a configuration: `${policy.precision}`, `${.n}`, `${NAME:default}`.

Resolved are OmegaConf's references with its `oc.select`, `oc.env`, `mul` and `multiply`, and
environment variables with a default. Anything else is refused where its key matters.

Source: OmegaConf 2.3 documentation, interpolations and built-in resolvers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from planner.errors import DocumentError
from planner.importers.training.scalar_text import scalar

_INNERMOST = re.compile(r"\$\{([^${}]*)\}")
_DEPTH = 8
_LENGTH_LIMIT = 2**12
_TWO_WAYS = re.compile(r"-\d+")  # `${TP:-1}`: 1 as a shell has it, -1 as Primus has it
_PRODUCTS = {"mul", "multiply"}
_WITH_DEFAULT = {"oc.select", "oc.env", "env"}
_UNKNOWN = object()


def resolved(value: Any, root: Mapping[str, Any], path: str) -> Any:
    """Return the value with what it refers to put in.

    Raises:
        DocumentError: if that cannot be known from the file alone.
    """
    if not isinstance(value, str) or "${" not in value:
        return value
    found: Any = value
    for _ in range(_DEPTH):
        if not isinstance(found, str) or len(found) > _LENGTH_LIMIT:
            return found
        match = _INNERMOST.search(found)
        if match is None:
            break
        inner = _looked_up(match[1], root, path)
        if inner is _UNKNOWN:
            break
        whole = match[0] == found
        found = inner if whole else found[: match.start()] + str(inner) + found[match.end() :]
    if isinstance(found, str) and "${" in found:
        raise DocumentError(
            "refers to what the file does not say",
            field=path,
            value=value,
            remedy="write its value",
        )
    return scalar(found) if isinstance(found, str) else found


def _looked_up(body: str, root: Mapping[str, Any], path: str) -> Any:
    """Return what stands between the braces of a reference, or _UNKNOWN."""
    name, colon, rest = body.partition(":")
    if not colon:
        return _at(name.strip(), root, path)
    if name in _PRODUCTS:
        numbers = [scalar(one.strip()) for one in rest.split(",")]
        return math.prod(numbers) if all(isinstance(one, int) for one in numbers) else _UNKNOWN
    if name in _WITH_DEFAULT:
        key, comma, default = rest.partition(",")
        found = _at(key.strip(), root, path) if name == "oc.select" else _UNKNOWN
        return scalar(default.strip()) if found is _UNKNOWN and comma else found
    if not name.isupper() or _TWO_WAYS.fullmatch(rest):
        return _UNKNOWN
    return scalar(rest)


def _at(name: str, root: Mapping[str, Any], path: str) -> Any:
    """Return what stands at a path, from the root or, with leading dots, from where `path` is."""
    up = len(name) - len(name.lstrip("."))
    parts = path.split(".")[:-up] if up else []
    found: Any = root
    for part in (*parts, *name.lstrip(".").split(".")):
        if not isinstance(found, Mapping) or part not in found:
            return _UNKNOWN
        found = found[part]
    return found
