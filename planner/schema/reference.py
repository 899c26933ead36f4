"""Reference: the page of all documents and their fields, made of the schemas themselves.

python -m planner.schema.reference > docs/reference.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from planner.schema.bound_record import BoundRecord
from planner.schema.cluster import Cluster
from planner.schema.job import Job
from planner.schema.measured_run import MeasuredRun
from planner.schema.model import ModelGraph
from planner.schema.plan import Plan
from planner.schema.run import RunReport
from planner.schema.strategy import Strategy
from planner.schema.tuning import Tuning

DOCUMENTS: Mapping[str, type[Any]] = {
    "Cluster": Cluster,
    "Job": Job,
    "Strategy": Strategy,
    "Model graph": ModelGraph,
    "Plan": Plan,
    "Bound record": BoundRecord,
    "Run report": RunReport,
    "Tuning": Tuning,
    "Measured run": MeasuredRun,
}
_HEAD = """# Reference

Every field of every document, made of the schemas by `python -m planner.schema.reference`.
Documents are JSON or YAML; unknown fields are refused. A field without a default is required. Units
stand in the names; bounds and further rules are checked on reading, and an error names field, value
and remedy.
"""
_BOUNDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minItems": "at least {}",
    "maxItems": "at most {}",
}


def page() -> str:
    """Return the whole page in Markdown; a part of several documents stands with the first."""
    described: set[str] = set()
    return "\n".join(
        [_HEAD, *(line for title in DOCUMENTS for line in _document(title, described))]
    )


def _document(title: str, described: set[str]) -> Iterator[str]:
    document = DOCUMENTS[title]
    schema = document.model_json_schema(mode="validation")
    yield f"## {title}\n"
    yield from _described(schema)
    for name, part in sorted(schema.get("$defs", {}).items()):
        if name in described or name == "JsonValue" or _has_its_own_section(name):
            continue
        described.add(name)
        yield f"### {name}\n"
        yield from _described(part)


def _has_its_own_section(name: str) -> bool:
    """Return whether `name` is that of a document with a section of its own."""
    return any(document.__name__ == name for document in DOCUMENTS.values())


def _described(schema: Mapping[str, Any]) -> Iterator[str]:
    text = schema.get("description", "")
    if text:
        yield f"{_paragraphs(text)}\n"
    if "enum" in schema:
        yield f"One of {', '.join(f'`{value}`' for value in schema['enum'])}.\n"
        return
    if not schema.get("properties"):
        return
    yield "| field | type | default |"
    yield "|---|---|---|"
    required = set(schema.get("required", ()))
    for name, field in schema["properties"].items():
        default = "" if name in required or "default" not in field else _default(field["default"])
        yield f"| `{name}` | {_type(field)} | {default} |"
    yield ""


def _paragraphs(text: str) -> str:
    return text.strip().replace("|", "\\|")


def _default(value: object) -> str:
    """Return a default as JSON writes it."""
    return f"`{json.dumps(value)}`"


def _type(field: Mapping[str, Any]) -> str:
    """Return a field's type in words, with its bounds."""
    for key in ("anyOf", "oneOf"):
        if key in field:
            return " or ".join(dict.fromkeys(_type(option) for option in field[key]))
    if "$ref" in field:
        name = field["$ref"].rsplit("/", maxsplit=1)[-1]
        return "any JSON" if name == "JsonValue" else f"[{name}](#{_anchor(name)})"
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    kind = str(field.get("type", "any value"))
    if kind == "array":
        items = field.get("items")
        kind = f"list of {_type(items)}" if isinstance(items, dict) else "list"
    elif kind == "object":
        values = field.get("additionalProperties")
        kind = f"mapping to {_type(values)}" if isinstance(values, dict) and values else "mapping"
    bounds = [form.format(_number(field[key])) for key, form in _BOUNDS.items() if key in field]
    return f"{kind}, {', '.join(bounds)}" if bounds else kind


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else f"{value:,}".replace(",", " ")


def _anchor(name: str) -> str:
    titles = {document.__name__: title for title, document in DOCUMENTS.items()}
    return titles.get(name, name).lower().replace(" ", "-")


if __name__ == "__main__":
    sys.stdout.write(page())
