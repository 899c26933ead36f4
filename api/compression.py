"""Compression: what is answered again and again, such as a stored plan, is compressed once."""

from __future__ import annotations

import zlib
from functools import lru_cache

from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware, GZipResponder
from starlette.types import ASGIApp, Receive, Scope, Send

# What is smaller fits into one packet. Level 6 takes half the time of 9 for 1 % more bytes.
_LEAST_BYTES = 1024
_LEVEL = 6
# A plan of 64 stages has about 60 kB; at most 2 MiB are remembered.
_REMEMBERED_BYTES = 65_536
_REMEMBERED_COUNT = 32
_GZIP_FORMAT = 16 + zlib.MAX_WBITS


class Compression(GZipMiddleware):
    """Compresses for who accepts gzip, by Starlette's own rules of what."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app, minimum_size=_LEAST_BYTES, compresslevel=_LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and its answer back compressed."""
        if scope["type"] != "http" or "gzip" not in Headers(scope=scope).get("accept-encoding", ""):
            await super().__call__(scope, receive, send)
            return
        await _Responder(self.app, _LEAST_BYTES, _LEVEL)(scope, receive, send)


class _Responder(GZipResponder):
    async def apply_compression(self, body: bytes, *, more_body: bool) -> bytes:
        if more_body or self._compressor is not None or len(body) > _REMEMBERED_BYTES:
            return await super().apply_compression(body, more_body=more_body)
        return _compressed(body)


@lru_cache(maxsize=_REMEMBERED_COUNT)
def _compressed(body: bytes) -> bytes:
    """Return a whole body compressed."""
    return zlib.compress(body, _LEVEL, _GZIP_FORMAT)
