"""What surrounds every request: an id, a line in the log, numbers, a limit on the body."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable

import structlog
from anyio import fail_after
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars, clear_contextvars

from api.errors import (
    body_too_large_problem,
    body_too_slow_problem,
    misdirected_problem,
    problem_of,
)
from api.metrics import Metrics
from api.settings import Settings
from planner.schema.service import Problem

# What answers with a problem, beside further headers, as whoever asks can read it.
Refuse = Callable[[Problem, Request, dict[str, str] | None], Response]

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
}
_PRIVATE_HEADERS = {"Cache-Control": "private, no-cache"}
_PRIVATE_VARY = "Authorization, Cookie"
_STATIC = "/static/"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

log = structlog.get_logger(__name__)


class RequestRecord:
    """Names each request, logs and counts it, and answers where the application failed."""

    def __init__(self, app: ASGIApp, metrics: Metrics, refuse: Refuse) -> None:
        self._app, self._refuse = app, refuse
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(Headers(scope=scope).get("x-request-id"))
        clear_contextvars()
        bind_contextvars(request_id=request_id)
        started = time.perf_counter()
        status = 0

        async def named_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                for name, value in _safe_headers(scope["path"]).items():
                    headers.setdefault(name, value)
                if not scope["path"].startswith(_STATIC):
                    headers.add_vary_header(_PRIVATE_VARY)
            await send(message)

        try:
            await self._app(scope, receive, named_send)
        except Exception as error:
            log.exception("request failed", method=scope["method"], path=scope["path"])
            if status:
                raise
            response = self._refuse(problem_of(error), Request(scope), None)
            await response(scope, receive, named_send)
        finally:
            self._record(scope, status, time.perf_counter() - started)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        method, path = scope["method"], scope["path"]
        route = getattr(scope.get("route"), "path", "unmatched")
        self._metrics.observe(method=method, route=route, status=status, seconds=seconds)
        log.info("request", method=method, path=path, status=status, seconds=round(seconds, 4))


class HostCheck:
    """Refuses requests to names that are not this service's.

    A page of another site can have its own name resolve to 127.0.0.1 and then read what it likes
    (DNS rebinding); the `Host` header still has its name.
    """

    def __init__(self, app: ASGIApp, settings: Settings, refuse: Refuse) -> None:
        self._app, self._refuse = app, refuse
        self._names = _host_names(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http" or self._names is None:
            await self._app(scope, receive, send)
            return
        host = Headers(scope=scope).get("host", "")
        if _host_name(host) in self._names:
            await self._app(scope, receive, send)
            return
        response = self._refuse(misdirected_problem(host), Request(scope), None)
        await response(scope, receive, send)


def _host_names(settings: Settings) -> frozenset[str] | None:
    """Return the names that requests may be sent to; nothing if all may be.

    Where everybody needs a key, a foreign name is harmless: browsers keep cookies by name.
    """
    if not settings.allowed_hosts and not settings.local:
        return None
    given = (*settings.allowed_hosts, settings.host)
    return frozenset({*_LOOPBACK_NAMES, *(name.lower() for name in given)})


def _host_name(host: str) -> str:
    """Return the host of a `Host` header, without its port."""
    name = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
    return name.lower()


class BodyLimit:
    """Reads the body before the application does, and refuses one that is too large or too slow."""

    def __init__(
        self, app: ASGIApp, limit_bytes: int, limit_seconds: float, refuse: Refuse
    ) -> None:
        self._app, self._refuse = app, refuse
        self._limit_bytes, self._limit_seconds = limit_bytes, limit_seconds
        self._discarded_bytes = 2 * limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body in one piece."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        problem = body_too_large_problem(self._limit_bytes)
        try:
            with fail_after(self._limit_seconds):
                body = await self._read(scope, receive)
        except TimeoutError:
            body, problem = None, body_too_slow_problem(self._limit_seconds)
        if body is None:
            response = self._refuse(problem, Request(scope), {"Connection": "close"})
            await response(scope, receive, send)
            return
        given = False

        async def whole_body() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, whole_body, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the body, or nothing if it is too large.

        What is too large is read on and thrown away, up to twice the limit: a connection that is
        closed with bytes unread is reset, and neither a client nor a proxy then sees the answer.
        """
        headers = Headers(scope=scope)
        declared = headers.get("content-length", "0")
        declared_bytes = int(declared) if declared.isdecimal() else 0
        too_large = declared_bytes > self._limit_bytes
        if too_large and ("expect" in headers or declared_bytes > self._discarded_bytes):
            return None
        parts: list[bytes] = []
        length = 0
        while True:
            message = await receive()
            part = message.get("body", b"")
            length += len(part)
            too_large = too_large or length > self._limit_bytes
            if not too_large:
                parts.append(part)
            ended = message["type"] == "http.disconnect" or not message.get("more_body", False)
            if ended or length > self._discarded_bytes:
                return None if too_large else b"".join(parts)


def _safe_headers(path: str) -> dict[str, str]:
    """Return what every answer says to browsers unless its route says otherwise."""
    return _SAFE_HEADERS if path.startswith(_STATIC) else {**_SAFE_HEADERS, **_PRIVATE_HEADERS}


def _request_id(given: str | None) -> str:
    """Return the client's id if it is harmless, otherwise one of our own."""
    return given if given and _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
