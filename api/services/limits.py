"""Rate limits: how much one key may ask for in a minute."""

from __future__ import annotations

import time
from typing import cast

from limits import RateLimitItem, RateLimitItemPerMinute
from limits.errors import ConfigurationError, StorageError
from limits.storage import Storage, storage_from_string
from limits.strategies import SlidingWindowCounterRateLimiter

from api.caller import Caller, Scope
from api.errors import NotReadyError, RateLimitError
from api.logs import without_secrets
from api.settings import Settings
from planner.errors import InputError

_LOGIN_ATTEMPTS_PER_MINUTE = 30


class RateLimits:
    """Counts requests by key. Who needs no key is on this machine, and is not counted.

    Each process counts its own unless the storage is one that processes share.
    """

    def __init__(self, settings: Settings) -> None:
        self._limiter = SlidingWindowCounterRateLimiter(_storage(settings.rate_limit_storage))
        self._requests = RateLimitItemPerMinute(settings.requests_per_minute)
        self._plans = RateLimitItemPerMinute(settings.plans_per_minute)
        self._agents = RateLimitItemPerMinute(settings.agent_requests_per_minute)
        self._logins = RateLimitItemPerMinute(_LOGIN_ATTEMPTS_PER_MINUTE)

    def check(self, caller: Caller, scope: Scope) -> None:
        """Count a request that needs `scope`.

        Raises:
            RateLimitError: if the key has used up what it may ask for.
        """
        if caller.key_id is None:
            return
        self._count(self._requests, "requests", caller.key_id)
        if scope is Scope.PLAN:
            self._count(self._plans, "plans", caller.key_id)

    def check_agent(self, agent_id: str) -> None:
        """Count a request of an agent.

        Raises:
            RateLimitError: if it has used up what it may ask for.
        """
        self._count(self._agents, "agent", agent_id)

    def check_enrolment(self, address: str) -> None:
        """Count an attempt to enrol from `address`, behind which may be a whole cluster.

        Raises:
            RateLimitError: if there were too many.
        """
        self._count(self._agents, "enrolments", address)

    def check_login(self, address: str) -> None:
        """Count an attempt to sign in from `address`.

        Raises:
            RateLimitError: if there were too many.
        """
        self._count(self._logins, "logins", address)

    def _count(self, limit: RateLimitItem, kind: str, who: str) -> None:
        try:
            if self._limiter.hit(limit, kind, who):
                return
            window = self._limiter.get_window_stats(limit, kind, who)
        except StorageError as error:
            raise NotReadyError("the storage of rate limits cannot be reached") from error
        # The storage tells by the wall clock, which may have been set since: no window is longer.
        wait_seconds = min(max(1, round(window.reset_time - time.time())), limit.get_expiry())
        raise RateLimitError(kind, per_minute=limit.amount, retry_seconds=wait_seconds)


def _storage(uri: str) -> Storage:
    """Return the storage that counts.

    Raises:
        InputError: if there is none of that kind, or the package that it needs is not there.
    """
    try:
        return cast("Storage", storage_from_string(uri, wrap_exceptions=True))
    except (ConfigurationError, ValueError) as error:
        raise InputError(
            without_secrets(f"is not a storage that can count requests: {error}"),
            field="MESHWRIGHT_RATE_LIMIT_STORAGE",
            value=without_secrets(uri),
            remedy="leave it out, or write redis://HOST:PORT and install meshwright[redis]",
        ) from None
