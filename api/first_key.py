"""The first key: made where a service starts for the first time on this machine alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from api.caller import Scope
from api.db import Database
from api.schemas import ApiKeyRequest
from api.services.keys import KeyService, operator
from api.services.sessions import LOGIN_LINK_SECONDS, SessionService
from api.settings import Settings, check_keys

NAME = "first"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstKey:
    """A key that nobody has seen yet, and a link that signs in once clicked."""

    key: str = field(repr=False)
    login_path: str = field(repr=False)


def ensure_key(settings: Settings) -> FirstKey | None:
    """Return a new key where this machine's service has none yet; otherwise nothing.

    Raises:
        InputError: if other machines can reach the service and nobody could be let in.
    """
    database = Database(settings.database_url)
    try:
        keys = KeyService(database)
        any_usable = keys.any_usable()
        check_keys(settings, any_usable=any_usable)
        if any_usable or not settings.local or not settings.first_key:
            return None
        made = keys.create(operator(), ApiKeyRequest(name=NAME, scopes=tuple(Scope)))
        token = SessionService(database, keys, settings).login_token(made.id)
        return FirstKey(key=made.key, login_path=f"/login?token={token}")
    finally:
        database.close()


def announcement(first: FirstKey, settings: Settings) -> str:
    """Return what the terminal shows, once."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    minutes = LOGIN_LINK_SECONDS // 60
    return (
        "The first key of this service, shown this once; it may do everything:\n"
        f"    {first.key}\n"
        f"Open the dashboard signed in with it (within {minutes} minutes):\n"
        f"    http://{host}:{settings.port}{first.login_path}\n"
        "More keys: meshwright keys create --help\n"
    )
