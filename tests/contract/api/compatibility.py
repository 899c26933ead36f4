"""What in a new OpenAPI description would break a client of the old one.

Additions are compatible. What a client may rely on is: every operation, response and parameter
that there was; that requests which were valid stay so; that answers hold what they held.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Description = dict[str, Any]
_METHODS = ("get", "put", "post", "delete", "patch", "head", "options")
_KINDS = ("type", "$ref", "const", "format")
_FLOORS = ("minimum", "exclusiveMinimum", "minLength", "minItems")
_CEILINGS = ("maximum", "exclusiveMaximum", "maxLength", "maxItems")


def breaking_changes(old: Description, new: Description) -> list[str]:
    """Return each change from `old` to `new` that a client would notice, in words."""
    return [*_operation_changes(old, new), *_schema_changes(old, new)]


def _operation_changes(old: Description, new: Description) -> Iterator[str]:
    known = dict(_operations(new))
    for name, operation in _operations(old):
        if name not in known:
            yield f"{name} is gone"
            continue
        if operation.get("operationId") != known[name].get("operationId"):
            yield f"{name} is called {known[name].get('operationId')} in generated clients"
        yield from _response_changes(name, operation, known[name])
        yield from _parameter_changes(name, operation, known[name])
        if known[name].get("requestBody", {}).get("required") and "requestBody" not in operation:
            yield f"{name} demands a body"


def _response_changes(name: str, old: Description, new: Description) -> Iterator[str]:
    for status, response in old["responses"].items():
        if status not in new["responses"]:
            yield f"{name} no longer answers {status}"
            continue
        media_types = new["responses"][status].get("content", {})
        for media_type in response.get("content", {}):
            if media_type not in media_types:
                yield f"{name} no longer answers {status} as {media_type}"


def _parameter_changes(name: str, old: Description, new: Description) -> Iterator[str]:
    before = {(item["in"], item["name"]): item for item in old.get("parameters", ())}
    after = {(item["in"], item["name"]): item for item in new.get("parameters", ())}
    for place, parameter in before.keys() - after.keys():
        yield f"{name} has lost the {place} parameter {parameter}"
    for key in before.keys() & after.keys():
        for narrowing in _tighter(before[key].get("schema", {}), after[key].get("schema", {})):
            yield f"{name} takes less of the {key[0]} parameter {key[1]}: {narrowing}"
    for key, item in after.items():
        if item.get("required") and not before.get(key, {}).get("required"):
            yield f"{name} demands the {key[0]} parameter {key[1]}"


def _schema_changes(old: Description, new: Description) -> Iterator[str]:
    sent = _reachable(old, "requestBody", "parameters")
    received = _reachable(old, "responses")
    schemas = new["components"]["schemas"]
    for name, schema in old["components"]["schemas"].items():
        if name not in sent | received:
            continue
        if name not in schemas:
            yield f"schema {name} is gone"
            continue
        yield from _property_changes(name, schema, schemas[name])
        if name in sent:
            yield from _narrowings(name, schema, schemas[name])
        if name in received:
            for field in _required(schema) - _required(schemas[name]):
                yield f"{name}.{field} is no longer always there"


def _property_changes(name: str, old: Description, new: Description) -> Iterator[str]:
    after = new.get("properties", {})
    for field, shape in old.get("properties", {}).items():
        if field not in after:
            yield f"{name}.{field} is gone"
        elif any(shape.get(kind) != after[field].get(kind) for kind in _KINDS):
            yield f"{name}.{field} is of another kind"


def _narrowings(name: str, old: Description, new: Description) -> Iterator[str]:
    for field in _required(new) - _required(old):
        yield f"{name}.{field} is demanded"
    for value in set(old.get("enum", ())) - set(new.get("enum", ())):
        yield f"{name} no longer takes {value}"

    for field, shape in old.get("properties", {}).items():
        for narrowing in _tighter(shape, new.get("properties", {}).get(field, {})):
            yield f"{name}.{field} takes less: {narrowing}"


def _tighter(old: Description, new: Description) -> Iterator[str]:
    """Yield which limits of a value that is sent have become narrower."""
    for keyword in (*_FLOORS, *_CEILINGS):
        before, after = old.get(keyword), new.get(keyword)
        if after is None or after == before:
            continue
        is_floor = keyword in _FLOORS
        if before is None or (after > before if is_floor else after < before):
            yield f"{keyword} {after}"
    if new.get("pattern") not in {None, old.get("pattern")}:
        yield f"pattern {new['pattern']}"


def _required(schema: Description) -> set[str]:
    return set(schema.get("required", ()))


def _operations(description: Description) -> Iterator[tuple[str, Description]]:
    for path, item in description["paths"].items():
        for method in _METHODS:
            if method in item:
                yield f"{method.upper()} {path}", item[method]


def _reachable(description: Description, *parts: str) -> set[str]:
    """Return the schemas that these parts of operations lead to."""
    schemas = description["components"]["schemas"]
    found: set[str] = set()
    open_parts = [
        operation[part]
        for _, operation in _operations(description)
        for part in parts
        if part in operation
    ]
    while open_parts:
        new = {name for name in _references(open_parts.pop()) if name not in found}
        found |= new
        open_parts += [schemas[name] for name in new]
    return found


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        folder, _, name = str(part.get("$ref", "")).rpartition("/")
        if folder == "#/components/schemas":
            yield name
        for value in part.values():
            yield from _references(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references(value)
