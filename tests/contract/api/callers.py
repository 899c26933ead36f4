"""Callers that tests put in a client's place, and keys for them."""

from __future__ import annotations

from api.caller import DEFAULT_PROJECT, Caller, Scope
from api.db import Database
from api.schemas import ApiKeyRequest, NewApiKey
from api.services.keys import KeyService, operator

LOCAL = Caller(project_id=DEFAULT_PROJECT, name="local", scopes=frozenset(Scope), key_id=None)


def a_key(
    database: Database, *scopes: str, project: str = DEFAULT_PROJECT, name: str = "ci"
) -> NewApiKey:
    """Return a new key with those scopes, all where none is given."""
    request = ApiKeyRequest(name=name, scopes=tuple(Scope(scope) for scope in scopes or Scope))
    return KeyService(database).create(operator(project), request)


def bearer(key: NewApiKey) -> dict[str, str]:
    """Return the header that says who asks."""
    return {"Authorization": f"Bearer {key.key}"}


def secret_of(key: str) -> str:
    """Return what follows the visible prefix of a key; it may hold underscores itself."""
    return key.split("_", maxsplit=2)[2]
