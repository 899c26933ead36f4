"""A visit: the session of the browser that a page is for, as templates and forms know it."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from fastapi import Request, Response
from markupsafe import Markup

from api.caller import Caller, Scope
from api.deps import SESSION_COOKIE, credentials, services
from api.errors import ForeignSiteError
from api.services.sessions import Session, SessionService
from planner.schema.document import DOCUMENT_BYTES_LIMIT

FORM_TOKEN = "form_token"  # noqa: S105 - the name of a field
_VISIT: ContextVar[Visit | None] = ContextVar("visit", default=None)


@dataclass(slots=True, kw_only=True)
class Visit:
    """`to_be_kept` is set once the browser must keep the session for what it was shown."""

    request: Request
    session: Session
    form_token: str
    to_be_kept: bool = False

    @property
    def is_signed_in(self) -> bool:
        """Return whether the session belongs to a key."""
        return self.session.key_id is not None


async def begin_visit(request: Request) -> Visit:
    """Return the visit that the request belongs to, a new one if its browser has none."""
    visit = _visit(request, services(request).sessions)
    _VISIT.set(visit)
    return visit


async def check_form(request: Request, visit: Visit) -> None:
    """Refuse a form that a page of this visit did not contain.

    Raises:
        ForeignSiteError: if another site sent it, or it lacks the visit's token.
    """
    if credentials(request).foreign:
        raise ForeignSiteError
    form = await request.form(max_part_size=DOCUMENT_BYTES_LIMIT)
    given = form.get(FORM_TOKEN)
    sessions = services(request).sessions
    if not isinstance(given, str) or not sessions.is_form_token(visit.session, given):
        raise ForeignSiteError


def keep(request: Request, response: Response, session: Session) -> None:
    """Have the browser keep the session: for this site only, out of reach of scripts."""
    response.set_cookie(
        SESSION_COOKIE,
        services(request).sessions.cookie(session),
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )


def form_token_field() -> Markup:
    """Return the field that every form of a page must have."""
    visit = _VISIT.get()
    if visit is None:
        return Markup()
    visit.to_be_kept = True
    return Markup('<input type="hidden" name="{}" value="{}">').format(FORM_TOKEN, visit.form_token)


def is_signed_in() -> bool:
    """Return whether the page is for somebody who signed in, with a key that still holds."""
    visit, caller = _VISIT.get(), visitor()
    let_in = caller is None or caller.key_id is not None
    return visit is not None and visit.is_signed_in and let_in


def is_visited() -> bool:
    """Return whether it is known whose page this is, as it is not before a request is routed."""
    return _VISIT.get() is not None


def visitor() -> Caller | None:
    """Return who the page is for, once the request was found to be allowed."""
    visit = _VISIT.get()
    return None if visit is None else getattr(visit.request.state, "caller", None)


def may(scope: Scope | str) -> bool:
    """Return whether who the page is for may do that; others are offered no form for it."""
    caller = visitor()
    return caller is not None and scope in caller.scopes


def is_administrator() -> bool:
    """Return whether the page is for somebody who may see keys and the audit log."""
    caller = visitor()
    return caller is not None and Scope.ADMIN in caller.scopes


def _visit(request: Request, sessions: SessionService) -> Visit:
    session = sessions.read(request.cookies.get(SESSION_COOKIE)) or sessions.begin()
    return Visit(request=request, session=session, form_token=sessions.form_token(session))
