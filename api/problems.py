"""How errors leave: every one as `application/problem+json`, as `api.errors` decides."""

from __future__ import annotations

from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from structlog.contextvars import get_contextvars

from api.db import UNAVAILABLE
from api.errors import (
    RateLimitError,
    UnauthenticatedError,
    http_problem,
    invalid_request_problem,
    problem_of,
    unknown_path_problem,
    wrong_method_problem,
)
from planner.errors import MeshwrightError
from planner.schema.service import Problem

MEDIA_TYPE = "application/problem+json"
_RETRY_SECONDS = "5"
_RETRIED = frozenset({429, 503})
_NOT_FOUND, _NOT_ALLOWED = 404, 405
_TOO_SLOW, _TOO_LARGE = 408, 413
_EVERYWHERE = (401, 403, 421, 422, 429, 500, 503)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI's account of problems with these statuses, and those any request can get."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        status: {"description": "A problem (RFC 9457).", "content": content}
        for status in sorted({*statuses, *_EVERYWHERE, *_bodily(statuses)})
    }


def _bodily(statuses: tuple[int, ...]) -> tuple[int, ...]:
    """Return what a body can be refused with besides: one that may be too large may be too slow."""
    return (_TOO_SLOW,) if _TOO_LARGE in statuses else ()


def problem_response(
    problem: Problem, *, instance: str, headers: dict[str, str] | None = None
) -> Response:
    """Return `problem` as a response."""
    shown = problem.model_copy(
        update={"instance": instance, "request_id": get_contextvars().get("request_id")}
    )
    retry = {"Retry-After": _RETRY_SECONDS} if problem.status in _RETRIED else {}
    return Response(
        shown.model_dump_json(exclude_none=True),
        status_code=problem.status,
        media_type=MEDIA_TYPE,
        headers={**retry, **(headers or {})},
    )


def add_handlers(app: FastAPI) -> None:
    """Have every error that `app` foresees answered by a problem."""
    for kind in (MeshwrightError, *UNAVAILABLE):
        app.add_exception_handler(kind, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, on_http_exception)


async def _on_error(request: Request, error: Exception) -> Response:
    return problem_response(
        problem_of(error), instance=request.url.path, headers=error_headers(error)
    )


def error_headers(error: Exception) -> dict[str, str]:
    """Return what headers tell of `error` besides the problem."""
    if isinstance(error, UnauthenticatedError):
        return {"WWW-Authenticate": error.challenge}
    if isinstance(error, RateLimitError):
        return {"Retry-After": str(error.retry_seconds)}
    return {}


async def _on_invalid_request(request: Request, error: Exception) -> Response:
    complaints = cast("RequestValidationError", error).errors()
    taken = getattr(request.scope.get("route"), "body_field", None)
    body = None if taken is None else taken.field_info.annotation
    is_document = isinstance(body, type) and issubclass(body, BaseModel)
    problem = invalid_request_problem(complaints, body=body if is_document else None)
    return problem_response(problem, instance=request.url.path)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Answer with the problem for a status that the web framework decided on."""
    refusal, path = cast("HTTPException", error), request.url.path
    problem = http_problem(refusal.status_code, str(refusal.detail))
    headers = dict(refusal.headers) if refusal.headers else {}
    if refusal.status_code == _NOT_ALLOWED:
        headers.update(_allow_header(request))
        problem = wrong_method_problem(request.method, path, headers.get("Allow", "another"))
    elif refusal.status_code == _NOT_FOUND:
        problem = unknown_path_problem(path)
    return problem_response(problem, instance=path, headers=headers)


def _allow_header(request: Request) -> dict[str, str]:
    """Return the header that names every method of the request's path, where it is an operation.

    Starlette's own names those of the first route alone; a path has a route for each method.
    """
    path = getattr(request.scope.get("route"), "path", None)
    methods = request.app.state.methods.get(path, frozenset())
    further = {"HEAD"} if "GET" in methods else frozenset()  # by `HeadRequests`
    return {"Allow": ", ".join(sorted(methods | further))} if methods else {}
