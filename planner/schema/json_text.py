"""JSON text -> plain values, each field of an object once: of two, readers would keep the later."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from planner.errors import DocumentError

# A string, also one without an end. Its alternatives begin differently: nothing is tried twice.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")
_OPENING = frozenset((b"[", b"{"))


class _RepeatedError(Exception):
    """An object has a field twice."""


class _Fields(list[tuple[str, Any]]):
    """The fields of an object as they stand in the text."""


def from_json(text: str, *, source: str) -> object:
    """Return the value that `text` spells; `source` names where it came from in errors.

    Raises:
        DocumentError: if an object has a field twice.
        RecursionError: if it is nested too deep.
        ValueError: if it is malformed.
    """
    try:
        value: object = json.loads(text, object_pairs_hook=_unique)
    except _RepeatedError:
        path = next(_repeated(json.loads(text, object_pairs_hook=_Fields), ()))
    else:
        return value
    raise repeated_field(".".join(path), source=source, where=None)


def check_extent(content: bytes, *, source: str, values_limit: int, nesting_limit: int) -> None:
    """Refuse JSON with too many values or levels before any is made: it is looked through once.

    Raises:
        DocumentError: if there are more commas, colons and brackets outside of strings than
            `values_limit`, or more brackets within one another than `nesting_limit`.
    """
    structure = _STRING.sub(b"", content)
    count = sum(map(structure.count, (b",", b":", b"[", b"{")))
    if count > values_limit:
        raise DocumentError(
            f"has more than {values_limit} values",
            field=source,
            value=f"{count} commas, colons and brackets",
            remedy="give the configuration alone, without weights or vocabulary",
        )
    depth = 0
    for bracket in _BRACKET.findall(structure):
        depth += 1 if bracket in _OPENING else -1
        if depth > nesting_limit:
            raise DocumentError(
                "is nested too deep",
                field=source,
                value=f"{depth} levels",
                remedy=f"keep nesting under {nesting_limit} levels",
            )


def repeated_field(name: str, *, source: str, where: str | None) -> DocumentError:
    """Return the error of a field that a document has twice."""
    return DocumentError(
        f"is given twice in {source}", field=name, value=where, remedy="keep one of the two"
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _RepeatedError
    return fields


def _repeated(value: object, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the paths of fields that their object has had before."""
    if isinstance(value, _Fields):
        seen = set()
        for name, item in value:
            if name in seen:
                yield (*path, name)
            seen.add(name)
            yield from _repeated(item, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _repeated(item, (*path, str(index)))
