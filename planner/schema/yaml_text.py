"""YAML text -> plain values. Loaded for the first YAML document only: most commands read none."""

from __future__ import annotations

from typing import Any

import yaml

from planner.errors import DocumentError


class _PlainLoader(yaml.SafeLoader):
    """Safe YAML without aliases, which let a small file stand for a huge one."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases are not allowed", problem_mark=mark)
        return super().compose_node(parent, index)


def from_yaml(text: str, *, source: str) -> object:
    """Return the value that `text` spells; `source` names where it came from in errors.

    Raises:
        DocumentError: if it is malformed or has aliases.
        RecursionError: if it is nested too deep.
        ValueError: if it has a number or a date that is none.
    """
    try:
        return yaml.load(text, Loader=_PlainLoader)  # noqa: S506  (a SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise DocumentError(
            f"is not valid YAML: {getattr(error, 'problem', None) or 'syntax error'}",
            field=source,
            value=f"line {mark.line + 1}" if mark is not None else "unknown place",
            remedy="mend the syntax; is the file whole?",
        ) from None


def to_yaml(fields: dict[str, Any]) -> str:
    """Return the YAML that spells `fields`, in their order."""
    text: str = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=100)
    return text
