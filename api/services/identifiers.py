"""Identifiers of what callers ask for: new ones, and those that their own keys stand for."""

from __future__ import annotations

import hashlib
import uuid

from pydantic import BaseModel
from sqlalchemy.orm import Session

from api.caller import Caller
from api.errors import KeyReusedError
from api.repositories.clock import current_time
from api.repositories.plans import IdempotencyKeyRepository

_ASKED_LENGTH = 31


def new_identifier(kind: str) -> str:
    """Return an identifier that nothing has, which begins with what it names."""
    return f"{kind}-{uuid.uuid4().hex}"


def identifier_of_key(
    session: Session, caller: Caller, request: BaseModel, *, key: str, kind: str
) -> str:
    """Return what an `Idempotency-Key` stands for: something new unless it was used before.

    Raises:
        KeyReusedError: if it was used for another request.
    """
    asked = hashlib.sha256(request.model_dump_json().encode()).hexdigest()[:_ASKED_LENGTH]
    # Beside what was asked for, the key keeps what came of it: both digests in one column.
    known = IdempotencyKeyRepository(session, caller.project_id).claim(
        key, request_digest=f"{asked}-{uuid.uuid4().hex}", at=current_time(session)
    )
    if known[:_ASKED_LENGTH] != asked:
        raise KeyReusedError(key)
    return f"{kind}-{known[_ASKED_LENGTH + 1 :]}"
