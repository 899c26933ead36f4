"""Bodies are documents: JSON of bounded depth with finite numbers, checked before all else.

What is read has an entity tag.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from api.deps import CallerWith
from api.entity_tags import unless_known
from api.errors import UnsupportedMediaTypeError
from planner.schema.document import parse_fields


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
            parse_fields(await request.body(), source="body")
            return await handle(request)

        return checked


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
