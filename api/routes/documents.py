"""Bodies are documents: JSON of bounded depth with finite numbers, checked before all else.

Parameters of addresses are those of the operation, each once. What is read has an entity tag.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, get_origin

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, QueryParams

from api.deps import CallerWith
from api.entity_tags import unless_known
from api.errors import QueryError, UnsupportedMediaTypeError
from planner.schema.document import NESTING_LIMIT, parse_fields
from planner.schema.json_text import check_extent

# A larger body is understood by a thread: it would hold other requests up for milliseconds.
_AT_ONCE_BYTES = 2**16
# A graph of 1,024 different blocks has about 60,000; what many more take is time.
_VALUES_LIMIT = 200_000


class DocumentRoute(APIRoute):
    """A route whose body, if it takes one, must be a document, and whose answers have tags."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, behind the checks."""
        handle = super().get_route_handler()
        guards, parameters = _guards(self.dependant), _parameters(self.dependant)
        is_read, has_body = "GET" in (self.methods or ()), self.body_field is not None

        async def checked(request: Request) -> Response:
            for guard in guards:
                await guard(request)
            check_query(request.query_params, parameters)
            if is_read:
                return unless_known(request, await handle(request))
            return await handle(await _read(request) if has_body else request)

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


async def _read(request: Request) -> _ReadRequest:
    """Return the request with its body understood.

    Raises:
        UnsupportedMediaTypeError: if it is no plain JSON.
        DocumentError: if it is no document, or too large a one.
    """
    check_media_type(request.headers)
    body = await request.body()
    if len(body) <= _AT_ONCE_BYTES:
        return _ReadRequest(request, body, _fields(body))
    return _ReadRequest(request, body, await run_in_threadpool(_fields, body))


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


def check_query(query: QueryParams, may_repeat: Mapping[str, bool]) -> None:
    """Refuse what would not be read: parameters that are unknown, or given more than once.

    Raises:
        QueryError: at the first.
    """
    for name, count in Counter(name for name, _ in query.multi_items()).items():
        if name not in may_repeat:
            known = ", ".join(may_repeat) or "none"
            remedy = f"leave it out; known parameters: {known}"
            raise QueryError(
                "is not a parameter of this operation", field=name, value=query[name], remedy=remedy
            )
        if count > 1 and not may_repeat[name]:
            raise QueryError(
                f"is given {count} times", field=name, value=query[name], remedy="keep one of them"
            )


def _parameters(dependant: Dependant) -> dict[str, bool]:
    """Return which parameters an address may have, and whether each may be there repeatedly."""
    found: dict[str, bool] = {}
    for needed in dependant.dependencies:
        found.update(_parameters(needed))
    for field in dependant.query_params:
        kind = field.field_info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            for name, each in kind.model_fields.items():
                found[each.alias or name] = _is_list(each.annotation)
        else:
            found[field.alias] = _is_list(kind)
    return found


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) in (list, tuple)


def check_media_type(headers: Headers) -> None:
    """Refuse what is not plain JSON.

    Raises:
        UnsupportedMediaTypeError: if it is not.
    """
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise UnsupportedMediaTypeError(
            media_type or "none", header="Content-Type", remedy="send application/json"
        )
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        raise UnsupportedMediaTypeError(
            coding, header="Content-Encoding", remedy="send the body without compressing it"
        )
