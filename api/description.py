"""The OpenAPI description: FastAPI's own, with the parts that it cannot know."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from api.schemas import Problem

_IF_NONE_MATCH = {
    "name": "if-none-match",
    "in": "header",
    "required": False,
    "schema": {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "If-None-Match"},
    "description": "The ETag of an answer that the client has.",
}
_TAG = {"schema": {"type": "string"}, "description": "Names this content (RFC 9110)."}


def describe(app: FastAPI) -> None:
    """Have `app.openapi()` include the problem that every route can answer with."""
    original = app.openapi

    def described() -> dict[str, Any]:
        known = app.openapi_schema is not None
        schema = original()
        if not known:
            _add_problem(schema)
            _add_keys(schema)
            _add_tags(schema)
        return schema

    app.openapi = described  # type: ignore[method-assign]


def _add_keys(schema: dict[str, Any]) -> None:
    """Say how callers say who they are; on a loopback address some of it needs no key."""
    schema["components"]["securitySchemes"] = {
        "Key": {
            "type": "http",
            "scheme": "bearer",
            "description": "An API key (`mw_...`), or an agent's own token where agents ask.",
        }
    }
    for path, item in schema["paths"].items():
        for operation in item.values():
            operation["security"] = [{"Key": []}, {}] if path.startswith("/v1/") else []


def _add_tags(schema: dict[str, Any]) -> None:
    """Say that whoever has an answer need not be sent it again; streams of events have no tag."""
    for path, item in schema["paths"].items():
        read = item.get("get")
        if read is None or not path.startswith("/v1/"):
            continue
        if "text/event-stream" in read["responses"]["200"]["content"]:
            continue
        read["parameters"] = [*read.get("parameters", ()), _IF_NONE_MATCH]
        read["responses"]["304"] = {"description": "The client has it already."}
        read["responses"]["200"]["headers"] = {"ETag": _TAG}


def _add_problem(schema: dict[str, Any]) -> None:
    _, definitions = models_json_schema(
        [(Problem, "serialization")], ref_template="#/components/schemas/{model}"
    )
    schema["components"]["schemas"].update(definitions["$defs"])
