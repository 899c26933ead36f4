"""The OpenAPI description: FastAPI's own, with the parts that it cannot know."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from pydantic.json_schema import models_json_schema

from planner.schema.service import Problem

_IF_NONE_MATCH = {
    "name": "if-none-match",
    "in": "header",
    "required": False,
    "schema": {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "If-None-Match"},
    "description": "The ETag of an answer that the client has.",
}
# Which answer each operation shows: files under `examples`, as the service itself gave them.
_EXAMPLES = {
    "create_plan": "plan",
    "read_plan": "plan",
    "list_plans": "plans",
    "read_plan_labels": "labels",
    "label_plan": "labels",
    "create_estimate": "estimate",
    "read_operation": "operation",
    "create_run": "run",
    "read_run": "run",
    "create_tuning": "tuning",
    "read_tuning": "tuning",
}
EXAMPLES_FOLDER = Path(__file__).parent / "examples"
_TAG = {"schema": {"type": "string"}, "description": "Names this content (RFC 9110)."}


def describe(app: FastAPI) -> None:
    """Have `app.openapi()` include the problem that every route can answer with, and serve it.

    To describe all takes most of a second: a thread does it, once, while others are answered.
    """
    original = app.openapi

    def described() -> dict[str, Any]:
        known = app.openapi_schema is not None
        schema = original()
        if not known:
            _add_problem(schema)
            _add_keys(schema)
            _add_tags(schema)
            _add_examples(schema)
        return schema

    @cache
    def text() -> str:
        return json.dumps(described(), ensure_ascii=False, separators=(",", ":"))

    def show_description() -> Response:
        return Response(text(), media_type="application/json")

    app.openapi = described  # type: ignore[method-assign]
    app.add_api_route("/openapi.json", show_description, include_in_schema=False)


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


def _add_examples(schema: dict[str, Any]) -> None:
    """Show what the main operations answer to the examples of their requests."""
    schema["components"]["examples"] = {
        name: {"value": json.loads((EXAMPLES_FOLDER / f"{name}.json").read_text(encoding="utf-8"))}
        for name in sorted(set(_EXAMPLES.values()))
    }
    for item in schema["paths"].values():
        for operation in item.values():
            name = _EXAMPLES.get(operation["operationId"])
            if name is not None:
                success = min(status for status in operation["responses"] if status[0] == "2")
                content = operation["responses"][success]["content"]["application/json"]
                content["examples"] = {name: {"$ref": f"#/components/examples/{name}"}}


def _add_problem(schema: dict[str, Any]) -> None:
    _, definitions = models_json_schema(
        [(Problem, "serialization")], ref_template="#/components/schemas/{model}"
    )
    schema["components"]["schemas"].update(definitions["$defs"])
