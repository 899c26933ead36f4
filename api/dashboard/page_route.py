"""Routes of pages: what goes wrong on them is told in a page, not in JSON."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import structlog
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException as StarletteHTTPException

from api.dashboard.rendering import problem_page, see
from api.dashboard.visit import begin_visit, check_form, keep
from api.deps import SESSION_COOKIE
from api.errors import UnauthenticatedError, http_problem, invalid_request_problem, problem_of
from api.problems import error_headers, problem_response
from planner.errors import shorten
from planner.schema.service import Problem

log = structlog.get_logger(__name__)


class PageRoute(APIRoute):
    """A route whose errors are pages, and whose forms must come from its own pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, with a page in place of each error."""
        handle = super().get_route_handler()

        async def shown(request: Request) -> Response:
            visit = await begin_visit(request)
            try:
                if request.method == "POST":
                    await check_form(request, visit)
                response = await handle(request)
            except UnauthenticatedError as error:
                response = _sign_in(request) if request.method == "GET" else _told(error)
            except Exception as error:  # noqa: BLE001 - this is where errors become answers
                response = _told(error)
            if visit.to_be_kept and SESSION_COOKIE not in response.headers.get("set-cookie", ""):
                keep(request, response, visit.session)
            return response

        return shown


async def missing_page(request: Request) -> Response:
    """Return the page that says that there is none at this address."""
    await begin_visit(request)
    return problem_page(
        http_problem(HTTPStatus.NOT_FOUND, f"there is no page {shorten(request.url.path)!r}")
    )


def is_for_a_page(request: Request) -> bool:
    """Return whether a person asks, with a browser, and not for a document of the interface."""
    accepted = request.headers.get("accept", "")
    return "text/html" in accepted and not request.scope["path"].startswith("/v1/")


def readable_response(
    problem: Problem, request: Request, headers: dict[str, str] | None = None
) -> Response:
    """Return `problem` as whoever asks can read it: a page for a person, else a document."""
    if not is_for_a_page(request):
        return problem_response(problem, instance=request.scope["path"], headers=headers)
    response = problem_page(problem)
    response.headers.update(headers or {})
    return response


def _sign_in(request: Request) -> Response:
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return see(f"/login?next={quote(wanted)}")


def _told(error: Exception) -> Response:
    response = problem_page(_problem(error))
    response.headers.update(error_headers(error))
    return response


def _problem(error: Exception) -> Problem:
    if isinstance(error, StarletteHTTPException):
        return http_problem(error.status_code, str(error.detail))
    if isinstance(error, RequestValidationError):
        return invalid_request_problem(error.errors())
    problem = problem_of(error)
    if problem.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("page failed", exc_info=error)
    return problem
