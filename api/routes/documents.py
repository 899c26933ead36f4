"""Bodies are documents: JSON of bounded depth with finite numbers, checked before all else."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from api.errors import UnsupportedMediaTypeError
from planner.errors import DocumentError
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
            check_document(await request.body())
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


def check_document(body: bytes) -> None:
    """Refuse what is no document, before anything else is made of it.

    Raises:
        DocumentError: saying where and why.
    """
    fields = parse_fields(body, source="body")
    try:
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise DocumentError(
            "has half of a surrogate pair in a string",
            field="body",
            remedy="write whole Unicode characters",
        ) from None
