"""Signing in with a key or a link, and out again."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from api.dashboard.page_route import PageRoute
from api.dashboard.rendering import page, see
from api.dashboard.visit import keep
from api.deps import SESSION_COOKIE, Sessions, client_address, services
from api.services.sessions import Session

_UNAUTHORIZED = 401
_KEY_LENGTH_LIMIT = 200
_PATH_LENGTH_LIMIT = 2000
_USELESS_LINK = (
    "The link was used before, is older than 10 minutes, or is incomplete. Sign in with a key."
)

router = APIRouter(route_class=PageRoute, include_in_schema=False)

NextPath = Annotated[str, Query(alias="next", max_length=_PATH_LENGTH_LIMIT)]
LinkToken = Annotated[str | None, Query(alias="token", max_length=1000)]


@router.get("/login")
async def show_login(
    request: Request, sessions: Sessions, token: LinkToken = None, then: NextPath = "/"
) -> Response:
    """Show where to give a key, or sign in by a link."""
    if token is None:
        return _login_page(then)
    session = await run_in_threadpool(sessions.sign_in_by_link, token)
    if session is None:
        return _login_page(then, complaint=_USELESS_LINK)
    return _signed_in(request, session, then)


@router.post("/login")
async def log_in(request: Request, sessions: Sessions) -> Response:
    """Sign in with the key that the form gives."""
    form = await request.form()
    key, then = str(form.get("key", "")).strip(), str(form.get("next", "/"))
    services(request).authentication.check_login(client_address(request))
    session = await run_in_threadpool(sessions.sign_in, key[:_KEY_LENGTH_LIMIT])
    if session is None:
        return _login_page(then, complaint="No such key, or it has expired or was revoked.")
    return _signed_in(request, session, then)


@router.post("/logout")
async def log_out(request: Request, sessions: Sessions) -> Response:
    """End the session, also for whoever has a copy of its cookie."""
    await run_in_threadpool(sessions.end, request.cookies.get(SESSION_COOKIE))
    response = see("/login")
    response.delete_cookie(SESSION_COOKIE)
    return response


def own_path(given: str) -> str:
    """Return `given` if it leads to a page of this site, otherwise the first page."""
    parts = urlsplit(given)
    is_own = given.startswith("/") and not given.startswith(("//", "/\\"))
    return given if is_own and not parts.netloc and given.isprintable() else "/"


def _signed_in(request: Request, session: Session, then: str) -> Response:
    response = see(own_path(then))
    keep(request, response, session)
    return response


def _login_page(then: str, *, complaint: str | None = None) -> Response:
    return page(
        "login.html",
        status=200 if complaint is None else _UNAUTHORIZED,
        complaint=complaint,
        next_path=own_path(then),
    )
