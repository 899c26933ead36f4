"""Sessions of the dashboard: who is signed in, as a signed cookie says.

A cookie names a key by its id and carries no secret. The key is looked up at every request, so a
revoked one ends its sessions at once; so is whether the session was ended, so that a copy of its
cookie is worth nothing after that. Forms carry a token that follows from the session's own random
part; another site can send a form, but cannot know the token.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

from itsdangerous import BadData, URLSafeTimedSerializer
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session as UnitOfWork

from api.caller import Caller
from api.db import Database, settled
from api.repositories.audit import AuditRepository
from api.repositories.secrets import SecretRepository
from api.repositories.spent_tokens import SpentTokenRepository
from api.services.keys import KeyService
from api.services.tokens import token_hash
from api.settings import Settings

_SIGNING = "sessions"
_RANDOM_BYTES = 32
_NONCE_BYTES = 16
_SALT_LENGTH = 32
LOGIN_LINK_SECONDS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A visitor of the dashboard; `key_id` is null until it signs in."""

    nonce: str
    key_id: str | None


class SessionService:
    """Signs and reads what cookies, forms and login links carry."""

    def __init__(self, database: Database, keys: KeyService, settings: Settings) -> None:
        self._database = database
        self._keys = keys
        self._settings = settings

    def open(self) -> None:
        """Read the secret that signs, so that no request waits for the database to do it."""
        _ = self._secret

    def begin(self, key_id: str | None = None) -> Session:
        """Return a new session; signing in begins one anew, so that none can be planted."""
        return Session(nonce=secrets.token_urlsafe(_NONCE_BYTES), key_id=key_id)

    def cookie(self, session: Session) -> str:
        """Return what a browser keeps of the session."""
        return self._signer("session").dumps({"nonce": session.nonce, "key": session.key_id})

    def read(self, cookie: str | None) -> Session | None:
        """Return the session that a cookie stands for; nothing if it is forged or too old."""
        if not cookie:
            return None
        try:
            fields = self._signer("session").loads(
                cookie, max_age=self._settings.session_seconds_limit
            )
        except BadData:
            return None
        return Session(nonce=fields["nonce"], key_id=fields["key"])

    def caller(self, session: Session | None) -> Caller | None:
        """Return who is signed in; nothing if nobody is, it was ended, or the key holds no more."""
        if session is None or session.key_id is None or self._is_ended(session):
            return None
        return self._keys.holder(session.key_id)

    def form_token(self, session: Session) -> str:
        """Return what every form of a page carries, salted.

        It is another in each page: from the length of many compressed pages nobody learns it.
        """
        return self._form_token(session, salt=secrets.token_hex(_SALT_LENGTH // 2))

    def is_form_token(self, session: Session, given: str) -> bool:
        """Return whether a form carried what it should."""
        expected = self._form_token(session, salt=given[:_SALT_LENGTH])
        return hmac.compare_digest(expected.encode(), given.encode())

    def sign_in(self, text: str) -> Session | None:
        """Return the session of who holds the key `text`; nothing if it is no good."""
        return self._begun(self._keys.identified(text))

    def login_token(self, key_id: str) -> str:
        """Return what a login link carries: good once, for some minutes, in place of the key."""
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        return self._signer("login").dumps({"nonce": nonce, "key": key_id})

    def sign_in_by_link(self, token: str) -> Session | None:
        """Return the session of a login link; nothing if it is forged, too old or was followed."""
        try:
            fields = self._signer("login").loads(token, max_age=LOGIN_LINK_SECONDS)
        except BadData:
            return None
        return self._begun(self._keys.holder(fields["key"]), link_nonce=fields["nonce"])

    def end(self, cookie: str | None) -> None:
        """End the session of a cookie: whoever has a copy of it is signed in no more."""
        session = self.read(cookie)
        caller = self.caller(session)
        if session is None or caller is None:
            return
        with self._database.writing() as work:
            self._spend(work, session.nonce, self._settings.session_seconds_limit)
            AuditRepository(work).add(caller, action="session.end", subject=session.key_id or "")

    def _begun(self, caller: Caller | None, *, link_nonce: str | None = None) -> Session | None:
        if caller is None or caller.key_id is None:
            return None
        try:
            with self._database.writing() as work:
                if link_nonce and not self._spend(work, link_nonce, LOGIN_LINK_SECONDS):
                    return None
                AuditRepository(work).add(caller, action="session.begin", subject=caller.key_id)
        except IntegrityError:  # the link was followed twice at the same time
            return None
        return self.begin(caller.key_id)

    def _is_ended(self, session: Session) -> bool:
        with self._database.reading() as work:
            return SpentTokenRepository(work).has(token_hash(session.nonce))

    def _spend(self, work: UnitOfWork, nonce: str, seconds: int) -> bool:
        expires_at = datetime.now(UTC) + timedelta(seconds=seconds)
        return SpentTokenRepository(work).spend(token_hash(nonce), expires_at=expires_at)

    def _form_token(self, session: Session, *, salt: str) -> str:
        content = f"form:{session.nonce}:{salt}".encode()
        mac = hmac.new(self._secret.encode(), content, hashlib.sha256).hexdigest()
        return salt + mac[:_SALT_LENGTH]

    def _signer(self, purpose: str) -> URLSafeTimedSerializer:
        return URLSafeTimedSerializer(
            self._secret, salt=purpose, signer_kwargs={"digest_method": hashlib.sha256}
        )

    @cached_property
    def _secret(self) -> str:
        """Return the operator's secret, or the one that all processes share in the database."""
        given = self._settings.session_secret
        if given is not None:
            return given.get_secret_value()
        return settled(self._stored_secret)

    def _stored_secret(self) -> str:
        with self._database.reading() as session:
            known = SecretRepository(session).get(_SIGNING)
        if known is not None:
            return known
        with self._database.writing() as session:
            new = secrets.token_urlsafe(_RANDOM_BYTES)
            return SecretRepository(session).get_or_add(_SIGNING, new)
