"""Entity tags: who has an answer already is told so in place of it (RFC 9110, 8.8.3 and 13.1.2)."""

from __future__ import annotations

import hashlib

from fastapi import Request, Response
from fastapi.responses import StreamingResponse

_OK = 200
_NOT_MODIFIED = 304


def unless_known(request: Request, response: Response) -> Response:
    """Return what GET answers with a tag, or 304 where the client has the same already.

    A tag that the handler set stays; what is streamed has none.
    """
    if response.status_code != _OK or isinstance(response, StreamingResponse):
        return response
    tag = response.headers.get("etag")
    if tag is None:
        tag = response.headers["etag"] = f'"{hashlib.sha256(response.body).hexdigest()}"'
    if _matches(tag, request.headers.get("if-none-match")):
        return Response(status_code=_NOT_MODIFIED, headers={"ETag": tag})
    return response


def _matches(tag: str, if_none_match: str | None) -> bool:
    """Return whether the client's copy is current, by weak comparison."""
    given = [each.strip().removeprefix("W/") for each in (if_none_match or "").split(",")]
    return tag in given or "*" in given
