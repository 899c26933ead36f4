"""API keys: made, listed, revoked, and recognised.

    mw_ab12cd34_Zk...   the visible prefix, then 256 random bits

A key is shown once, when it is made. What is stored is its SHA-256: for 256 random bits no slower
hash is needed, because nothing can be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import uuid
from datetime import UTC, datetime, timedelta

from sqlalchemy.orm import Session

from api.caller import DEFAULT_PROJECT, Caller, Scope
from api.cursors import foreign_cursor, identifier, identifier_cursor
from api.db import Database
from api.errors import ForbiddenError, NotFoundError
from api.project_schemas import PROJECT_PATTERN
from api.repositories.audit import AuditRepository
from api.repositories.keys import KeyRepository, ProjectRepository
from api.schemas import ApiKey, ApiKeyList, ApiKeyRequest, KeyQuery, NewApiKey
from api.tables import ApiKeyRow
from planner.errors import InputError

OPERATOR = "operator"
_KEY = re.compile(r"(mw_[a-z0-9]{8})_[A-Za-z0-9_-]{43}")
_PREFIX_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
_PREFIX_LENGTH = 8
_SECRET_BYTES = 32


class KeyService:
    """Keys of all projects; over HTTP, an administrator sees those of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def identified(self, text: str) -> Caller | None:
        """Return who holds the key `text`; nothing if it is unknown, expired or revoked."""
        match = _KEY.fullmatch(text)
        if match is None:
            return None
        with self._database.reading() as session:
            row = KeyRepository(session).with_prefix(match[1])
        if row is None or not hmac.compare_digest(row.secret_hash, _hash(text)):
            return None
        return _caller(row)

    def holder(self, key_id: str) -> Caller | None:
        """Return whom the key with that id stands for; nothing if it no longer holds."""
        with self._database.reading() as session:
            row = KeyRepository(session).get(key_id)
        return None if row is None else _caller(row)

    def any_usable(self) -> bool:
        """Return whether some key lets somebody in."""
        with self._database.reading() as session:
            return KeyRepository(session).count_usable(at=datetime.now(UTC)) > 0

    def create(self, caller: Caller, request: ApiKeyRequest) -> NewApiKey:
        """Make a key of the caller's project; the answer is the only place that shows it.

        Raises:
            ForbiddenError: if the key would be allowed more than the caller is.
        """
        with self._database.writing() as session:
            ProjectRepository(session).ensure(caller.project_id, at=datetime.now(UTC))
            return create_key(session, caller, request)

    def list(self, caller: Caller, query: KeyQuery) -> ApiKeyList:
        """Return a page of the keys of the caller's project, the oldest first.

        Raises:
            InputError: if the cursor is none of ours.
        """
        with self._database.reading() as session:
            keys = KeyRepository(session)
            after = None
            if query.cursor is not None:
                after = keys.get(identifier(query.cursor))
                if after is None or after.project_id != caller.project_id:
                    raise foreign_cursor(query.cursor)
            rows = keys.page(
                caller.project_id,
                usable_at=datetime.now(UTC) if query.usable else None,
                after=after,
                limit=query.limit + 1,
            )
        page = rows[: query.limit]
        more = identifier_cursor(page[-1].id) if len(rows) > query.limit else None
        return ApiKeyList(items=tuple(shown_key(row) for row in page), next_cursor=more)

    def of_project(self, caller: Caller) -> tuple[ApiKey, ...]:
        """Return all keys of the caller's project, the oldest first."""
        with self._database.reading() as session:
            rows = KeyRepository(session).all(project_ids=(caller.project_id,))
        return tuple(shown_key(row) for row in rows)

    def list_all(self) -> ApiKeyList:
        """Return the keys of all projects, for who runs the service."""
        with self._database.reading() as session:
            rows = KeyRepository(session).all()
        return ApiKeyList(items=tuple(shown_key(row) for row in rows), next_cursor=None)

    def revoke(self, caller: Caller, key_id: str) -> ApiKey:
        """Have the key let nobody in any more, at once; twice is the same as once.

        Raises:
            NotFoundError: if the caller's project has none with that id.
        """
        with self._database.writing() as session:
            keys = KeyRepository(session)
            row = keys.get(key_id)
            if row is None or row.project_id != caller.project_id:
                raise NotFoundError("key", key_id)
            if keys.revoke(key_id, at=datetime.now(UTC)):
                AuditRepository(session).add(
                    caller, action="key.revoke", subject=key_id, details={"prefix": row.prefix}
                )
            session.refresh(row)
            return shown_key(row)

    def revoke_by_name(self, given: str) -> ApiKey:
        """Revoke the key with that id or visible prefix, for who runs the service.

        Raises:
            NotFoundError: if there is none.
        """
        with self._database.reading() as session:
            keys = KeyRepository(session)
            row = keys.get(given) or keys.with_prefix(given)
        if row is None:
            raise NotFoundError("key", given)
        return self.revoke(operator(row.project_id), row.id)


def create_key(session: Session, caller: Caller, request: ApiKeyRequest) -> NewApiKey:
    """Make a key of the caller's project, which exists, and write down that it was made.

    Raises:
        ForbiddenError: if the key would be allowed more than the caller is.
    """
    more = set(request.scopes) - caller.scopes
    if more:
        raise ForbiddenError(", ".join(sorted(more)), caller=caller.name)
    now = datetime.now(UTC)
    prefix = "mw_" + "".join(secrets.choice(_PREFIX_ALPHABET) for _ in range(_PREFIX_LENGTH))
    text = f"{prefix}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    expires = request.expires_in_days
    row = ApiKeyRow(
        id=f"key-{uuid.uuid4().hex}",
        project_id=caller.project_id,
        name=request.name,
        prefix=prefix,
        secret_hash=_hash(text),
        scopes=",".join(sorted(set(request.scopes))),
        created_at=now,
        expires_at=None if expires is None else now + timedelta(days=expires),
    )
    KeyRepository(session).add(row)
    AuditRepository(session).add(
        caller,
        action="key.create",
        subject=row.id,
        details={"name": row.name, "prefix": prefix, "scopes": row.scopes},
    )
    return NewApiKey(**shown_key(row).model_dump(), key=text)


def operator(project_id: str = DEFAULT_PROJECT) -> Caller:
    """Return the caller that stands for who runs the service, at its command line.

    Raises:
        InputError: if no project can have that name.
    """
    if not re.fullmatch(PROJECT_PATTERN, project_id):
        raise InputError(
            "is not a name for a project",
            field="--project",
            value=project_id,
            remedy="use at most 64 of a-z, 0-9, '.', '_' and '-', beginning with one of a-z, 0-9",
        )
    return Caller(project_id=project_id, name=OPERATOR, scopes=frozenset(Scope), key_id=None)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _caller(row: ApiKeyRow) -> Caller | None:
    expired = row.expires_at is not None and row.expires_at <= datetime.now(UTC)
    if row.revoked_at is not None or expired:
        return None
    return Caller(
        project_id=row.project_id,
        name=row.name,
        scopes=frozenset(Scope(scope) for scope in row.scopes.split(",")),
        key_id=row.id,
    )


def shown_key(row: ApiKeyRow) -> ApiKey:
    """Return what may be shown of a key: all but its secret."""
    return ApiKey(
        id=row.id,
        project=row.project_id,
        name=row.name,
        prefix=row.prefix,
        scopes=tuple(Scope(scope) for scope in row.scopes.split(",")),
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )
