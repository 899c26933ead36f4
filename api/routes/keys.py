"""/v1/caller and /v1/keys."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.deps import Administrator, KeyId, Keys, Reader
from api.problems import documented
from api.routes.documents import DocumentRoute
from api.schemas import ApiKey, ApiKeyList, ApiKeyRequest, CallerInfo, KeyQuery, NewApiKey

router = APIRouter(prefix="/v1", tags=["keys"], route_class=DocumentRoute)


@router.get("/caller", responses=documented())
async def read_caller(caller: Reader) -> CallerInfo:
    """Say who asks, and what it may do."""
    return CallerInfo(
        project=caller.project_id,
        name=caller.name,
        scopes=tuple(sorted(caller.scopes)),
        key_id=caller.key_id,
    )


@router.get("/keys", responses=documented())
def list_keys(caller: Administrator, keys: Keys, query: Annotated[KeyQuery, Query()]) -> ApiKeyList:
    """List the keys of the project, the oldest first, revoked ones too."""
    return keys.list(caller, query)


@router.post("/keys", status_code=201, responses=documented(413, 415))
def create_key(caller: Administrator, keys: Keys, request: ApiKeyRequest) -> NewApiKey:
    """Make a key; only this answer shows it."""
    return keys.create(caller, request)


@router.delete("/keys/{key_id}", responses=documented(404))
def revoke_key(caller: Administrator, keys: Keys, key_id: KeyId) -> ApiKey:
    """Have a key let nobody in any more, from now on."""
    return keys.revoke(caller, key_id)
