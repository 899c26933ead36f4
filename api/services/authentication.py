"""Authentication: who a request comes from, and whether it may do what it asks."""

from __future__ import annotations

from dataclasses import dataclass, field

from api.caller import DEFAULT_PROJECT, Caller, Scope
from api.errors import ForbiddenError, ForeignSiteError, UnauthenticatedError
from api.services.keys import KeyService
from api.services.limits import RateLimits
from api.services.sessions import SessionService
from api.settings import Settings

ANONYMOUS = "anonymous"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a request brings: secrets, whether it changes things, and whence a browser sent it."""

    authorization: str | None = field(repr=False)
    session_cookie: str | None = field(repr=False)
    changes: bool
    foreign: bool


class Authentication:
    """Keys come first, then sessions; what is left is anonymous."""

    def __init__(
        self, keys: KeyService, sessions: SessionService, limits: RateLimits, settings: Settings
    ) -> None:
        self._keys = keys
        self._sessions = sessions
        self._limits = limits
        self._anonymous = Caller(
            project_id=DEFAULT_PROJECT,
            name=ANONYMOUS,
            scopes=settings.scopes_without_key,
            key_id=None,
        )

    def caller(self, given: Credentials) -> Caller:
        """Return who asks.

        A browser adds cookies to, and may reach a loopback address with, requests that other sites
        make. A key is never added so; without one, such requests may change nothing.

        Raises:
            UnauthenticatedError: if the key is no good, or one is needed and none was sent.
            ForeignSiteError: if another site sent a request that changes something.
        """
        if given.authorization is not None:
            return self._by_key(given.authorization)
        if given.changes and given.foreign:
            raise ForeignSiteError
        session = self._sessions.read(given.session_cookie)
        signed_in = self._sessions.caller(session)
        if signed_in is not None:
            return signed_in
        if not self._anonymous.scopes:
            raise UnauthenticatedError("a key is needed")
        return self._anonymous

    def check(self, caller: Caller, scope: Scope) -> None:
        """Refuse a caller that may not, or not now, do what takes `scope`.

        Raises:
            UnauthenticatedError: if a key would help.
            ForbiddenError: if the key lacks the scope.
            RateLimitError: if it asked too often.
        """
        if scope not in caller.scopes:
            if caller.key_id is None:
                raise UnauthenticatedError(f"this needs a key with the scope {scope.value}")
            raise ForbiddenError(scope.value, caller=caller.name)
        self._limits.check(caller, scope)

    def check_login(self, address: str) -> None:
        """Refuse an address that tried to sign in too often.

        Raises:
            RateLimitError: if it did.
        """
        self._limits.check_login(address)

    def _by_key(self, authorization: str) -> Caller:
        kind, _, text = authorization.partition(" ")
        caller = self._keys.identified(text.strip()) if kind.lower() == "bearer" else None
        if caller is None:
            raise UnauthenticatedError("the key is unknown, expired or revoked")
        return caller
