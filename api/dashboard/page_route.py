"""Routes of pages: what goes wrong on them is told in a page, not in JSON."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException as StarletteHTTPException

from api.dashboard.rendering import problem_page
from api.errors import http_problem, invalid_request_problem, problem_of
from api.schemas import Problem

log = structlog.get_logger(__name__)


class PageRoute(APIRoute):
    """A route whose errors are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, with a page in place of each error."""
        handle = super().get_route_handler()

        async def shown(request: Request) -> Response:
            try:
                return await handle(request)
            except Exception as error:  # noqa: BLE001 - this is where errors become answers
                return problem_page(_problem(error))

        return shown


def refuse_foreign_sites(request: Request) -> None:
    """Refuse a form that another site sent through the user's browser.

    Raises:
        HTTPException: 403, if the browser says so.
    """
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    own = f"{request.url.scheme}://{request.headers.get('host')}"
    if site not in {"same-origin", "none"} or (origin not in {None, "null", own}):
        raise HTTPException(HTTPStatus.FORBIDDEN, "this form was sent by another site")


def _problem(error: Exception) -> Problem:
    if isinstance(error, StarletteHTTPException):
        return http_problem(error.status_code, str(error.detail))
    if isinstance(error, RequestValidationError):
        return invalid_request_problem(error.errors())
    problem = problem_of(error)
    if problem.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("page failed", exc_info=error)
    return problem
