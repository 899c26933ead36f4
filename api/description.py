"""The OpenAPI description: FastAPI's own, with the parts that it cannot know."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from api.schemas import Problem


def describe(app: FastAPI) -> None:
    """Have `app.openapi()` include the problem that every route can answer with."""
    original = app.openapi

    def described() -> dict[str, Any]:
        known = app.openapi_schema is not None
        schema = original()
        if not known:
            _add_problem(schema)
            _add_keys(schema)
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


def _add_problem(schema: dict[str, Any]) -> None:
    _, definitions = models_json_schema(
        [(Problem, "serialization")], ref_template="#/components/schemas/{model}"
    )
    schema["components"]["schemas"].update(definitions["$defs"])
