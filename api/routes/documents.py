"""Bodies are documents: JSON of bounded depth with finite numbers, checked before all else."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from api.errors import UnsupportedMediaTypeError
from planner.schema.document import parse_fields


class DocumentRoute(APIRoute):
    """A route whose body, if it takes one, must be a document."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, behind the check."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def checked(request: Request) -> Response:
            check_media_type(request.headers.get("content-type", ""))
            parse_fields(await request.body(), source="body")
            return await handle(request)

        return checked


def check_media_type(content_type: str) -> None:
    """Refuse what is not JSON.

    Raises:
        UnsupportedMediaTypeError: if it is not.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise UnsupportedMediaTypeError(media_type or "none")
