"""YAML text -> plain values. Loaded for the first YAML document only: most commands read none.

Anchors and merge keys are read, as users' files have them. What they stand for is counted before
anything is built of it, so that a small file cannot stand for a huge one, or for itself.
"""

from __future__ import annotations

from typing import Any

import yaml

from planner.errors import DocumentError
from planner.schema.json_text import repeated_field

EXPANDED_LIMIT = 100_000
"""How many values a document may have where aliases are written out; Kubernetes' have thousands."""
_MERGE = "tag:yaml.org,2002:merge"
_TEXT, _INTEGER = "tag:yaml.org,2002:str", "tag:yaml.org,2002:int"
_NUMBERS = frozenset({_INTEGER, "tag:yaml.org,2002:float"})
_SEVERAL = "expected a single document in the stream"  # PyYAML's words
_CHARACTERS = 100  # of a text that count as a value more


class _RepeatedError(yaml.MarkedYAMLError):
    """A mapping has a field twice; what it merges from others does not count."""


class _CountingLoader(yaml.SafeLoader):
    """Safe YAML without repeated fields, whose aliases stand for `EXPANDED_LIMIT` values."""

    has_aliases = False

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            self.has_aliases = True
        return super().compose_node(parent, index)

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        """Return the tag of a value: `1:30` is text, as in YAML 1.2, and not 90."""
        tag = str(super().resolve(kind, value, implicit))  # type: ignore[no-untyped-call]
        return _TEXT if tag in _NUMBERS and kind is yaml.ScalarNode and ":" in value else tag

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Return a whole number: `0100` is 100, as in YAML 1.2, and not 64."""
        digits = str(self.construct_scalar(node)).replace("_", "")
        return int(digits) if digits.lstrip("+-").isdigit() else super().construct_yaml_int(node)

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for name, _ in node.value:
            if isinstance(name, yaml.ScalarNode) and name.tag != _MERGE:
                if (name.tag, name.value) in seen:
                    raise _RepeatedError(problem=name.value, problem_mark=name.start_mark)
                seen.add((name.tag, name.value))
        return node

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None and self.has_aliases:
            _check_expanded(node, {})
        return node


_CountingLoader.add_constructor(_INTEGER, _CountingLoader.construct_yaml_int)


def _check_expanded(node: yaml.Node, counts: dict[int, int | None]) -> int:
    """Return how many values `node` stands for; `counts` has those known, None within their own.

    Raises:
        MarkedYAMLError: if it stands for too many, or for itself.
    """
    key = id(node)
    known = counts.get(key, 0)
    if known is None:
        raise _refused(node, "an alias stands for what it is a part of")
    if known:
        return known
    counts[key] = None
    text = len(node.value) // _CHARACTERS if isinstance(node, yaml.ScalarNode) else 0
    total = 1 + text + sum(_check_expanded(part, counts) for part in _parts(node))
    if total > EXPANDED_LIMIT:
        raise _refused(node, f"aliases stand for more than {EXPANDED_LIMIT:,} values")
    counts[key] = total
    return total


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _refused(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def from_yaml(text: str, *, source: str) -> object:
    """Return the value that `text` spells; `source` names where it came from in errors.

    No part of it is the same object as another: each alias has its own copy.

    Raises:
        DocumentError: if it is malformed, has a field twice, or its aliases stand for too much.
        RecursionError: if it is nested too deep.
        ValueError: if it has a number or a date that is none.
    """
    try:
        return _read(text)
    except _RepeatedError as error:
        where = None if error.problem_mark is None else f"line {error.problem_mark.line + 1}"
        raise repeated_field(str(error.problem), source=source, where=where) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        if getattr(error, "context", None) == _SEVERAL and mark is not None:
            raise DocumentError(
                "has another YAML document after the first, and one is read",
                field=source,
                value=f"line {mark.line + 1}",
                remedy="give one alone, such as one task of a SkyPilot pipeline",
            ) from None
        raise DocumentError(
            f"is not valid YAML: {getattr(error, 'problem', None) or 'syntax error'}",
            field=source,
            value=f"line {mark.line + 1}" if mark is not None else "unknown place",
            remedy="correct the syntax; is the file complete?",
        ) from None


def _read(text: str) -> object:
    loader = _CountingLoader(text)
    try:
        value = loader.get_single_data()
        return _unshared(value) if loader.has_aliases else value
    finally:
        loader.dispose()


def _unshared(value: Any) -> Any:
    """Return a copy of `value` no two parts of which are one object."""
    if isinstance(value, dict):
        return {key: _unshared(item) for key, item in value.items()}
    return [_unshared(item) for item in value] if isinstance(value, list) else value


def to_yaml(fields: dict[str, Any]) -> str:
    """Return the YAML that spells `fields`, in their order."""
    text: str = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=100)
    return text
