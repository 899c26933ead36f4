"""HEAD: what GET would answer, without its content (RFC 9110, 9.3.2)."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_STREAM = "text/event-stream"


class HeadRequests:
    """Has every route that answers GET answer HEAD too, by the same handler.

    Routes name the methods that they take, and none names HEAD. A stream of events would go on for
    as long as what it follows: its client is told to be gone once its headers are sent.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, as one for the content where it is for the headers alone."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        asked = {**scope, "method": "GET"}
        try:
            await self._app(asked, receive, _HeadersAlone(send))
        except* _AnsweredError:  # which may have passed a group of tasks
            pass
        finally:
            scope.update({name: asked[name] for name in ("route",) if name in asked})


class _AnsweredError(Exception):
    """Ends a stream whose headers were all that was asked for."""


class _HeadersAlone:
    """Sends what an answer says about itself, and leaves its content out."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._streams = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._streams = (
                Headers(raw=message["headers"]).get("content-type", "").startswith(_STREAM)
            )
            await self._send(message)
            if self._streams:
                await self._send({"type": "http.response.body", "body": b""})
                raise _AnsweredError
        elif message["type"] == "http.response.body" and not message.get("more_body", False):
            await self._send({"type": "http.response.body", "body": b""})
