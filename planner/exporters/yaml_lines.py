"""YAML lines: nested fields as the text of a YAML file, in the order that they are given."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

Fields = dict[str, object]

_PLAIN = re.compile(r"[A-Za-z_./][\w./-]*")
# Words that YAML 1.1 reads as something else than text.
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def yaml_text(fields: Mapping[str, object], comments: tuple[str, ...] = ()) -> str:
    """Return the fields as YAML, after the comments."""
    return "\n".join([*(f"# {line}" for line in comments), *yaml_lines(fields)]) + "\n"


def yaml_lines(fields: Mapping[str, object], indent: str = "") -> list[str]:
    """Return a line for each field, those of a mapping under its name."""
    lines: list[str] = []
    for name, value in fields.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}{name}:", *yaml_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {_scalar(value)}")
    return lines


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_scalar, value))}]"
    text = str(value)
    if not isinstance(value, str):
        return text
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return text if plain else json.dumps(text)
