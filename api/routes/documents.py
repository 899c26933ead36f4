"""Bodies are documents: JSON of bounded depth with finite numbers, checked before all else.

What is read has an entity tag.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from api.deps import CallerWith
from api.entity_tags import unless_known
from api.errors import UnsupportedMediaTypeError
from planner.schema.document import NESTING_LIMIT, parse_fields
from planner.schema.json_text import check_extent

# A larger body is understood by a thread: it would hold other requests up for milliseconds.
_AT_ONCE_BYTES = 2**16
# A graph of 1,024 different blocks has about 60,000; what many more take is time.
_VALUES_LIMIT = 200_000


class DocumentRoute(APIRoute):
    """A route whose body, if it takes one, must be a document, and whose answers have tags."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, behind the check."""
        handle = super().get_route_handler()
        if "GET" in (self.methods or ()):

            async def tagged(request: Request) -> Response:
                return unless_known(request, await handle(request))

            return tagged
        if self.body_field is None:
            return handle
        guards = _guards(self.dependant)

        async def checked(request: Request) -> Response:
            for guard in guards:
                await guard(request)
            check_media_type(request.headers.get("content-type", ""))
            body = await request.body()
            if len(body) <= _AT_ONCE_BYTES:
                fields = _fields(body)
            else:
                fields = await run_in_threadpool(_fields, body)
            return await handle(_ReadRequest(request, body, fields))

        return checked


class _ReadRequest(Request):
    """A request whose body was read and understood, which is not done twice."""

    def __init__(self, request: Request, body: bytes, fields: dict[str, Any]) -> None:
        super().__init__(request.scope, request.receive)
        self._content, self._fields = body, fields

    async def body(self) -> bytes:
        """Return the body."""
        return self._content

    async def json(self) -> dict[str, Any]:
        """Return the fields that the body spells."""
        return self._fields


def _fields(body: bytes) -> dict[str, Any]:
    """Return what the body spells.

    Raises:
        DocumentError: if it is no document, or one with more values or levels than any of ours.
    """
    check_extent(body, source="body", values_limit=_VALUES_LIMIT, nesting_limit=NESTING_LIMIT + 1)
    return parse_fields(body, source="body")


def _guards(dependant: Dependant) -> tuple[CallerWith, ...]:
    """Return what refuses callers: it must come before a body is understood for them."""
    return tuple(
        needed.call for needed in dependant.dependencies if isinstance(needed.call, CallerWith)
    )


def check_media_type(content_type: str) -> None:
    """Refuse what is not JSON.

    Raises:
        UnsupportedMediaTypeError: if it is not.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise UnsupportedMediaTypeError(media_type or "none")
