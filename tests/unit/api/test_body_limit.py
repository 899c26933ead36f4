"""A body has so many bytes, and so many seconds to arrive."""

from __future__ import annotations

import anyio
from starlette.responses import JSONResponse

from api.middleware import BodyLimit


def answered(receive, *, limit_seconds):
    """Return the status and text that a client is answered whose body arrives by `receive`."""
    sent = []

    async def application(scope, receive, send):
        message = await receive()
        await JSONResponse({"length": len(message["body"])})(scope, receive, send)

    async def send(message):
        sent.append(message)

    def refuse(problem, _request, headers):
        return JSONResponse(problem.detail, status_code=problem.status, headers=headers)

    limit = BodyLimit(application, limit_bytes=100, limit_seconds=limit_seconds, refuse=refuse)
    scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
    anyio.run(limit, scope, receive, send)
    return sent[0]["status"], sent[1]["body"].decode()


def test_a_body_that_stops_arriving_is_refused():
    parts = [{"type": "http.request", "body": b"half", "more_body": True}]

    async def receive():
        return parts.pop() if parts else await anyio.sleep_forever()

    status, text = answered(receive, limit_seconds=0.01)

    assert status == 408
    assert "did not arrive within 0.01 s" in text
    assert "MESHWRIGHT_BODY_SECONDS_LIMIT" in text


def test_one_that_arrives_in_parts_is_read_whole():
    parts = [
        {"type": "http.request", "body": b"rest", "more_body": False},
        {"type": "http.request", "body": b"half", "more_body": True},
    ]

    async def receive():
        return parts.pop()

    assert answered(receive, limit_seconds=600) == (200, '{"length":8}')
