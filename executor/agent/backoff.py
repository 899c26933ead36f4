"""Backoff: how long to wait before the next try, so that many agents do not come back at once."""

from __future__ import annotations

import random

_FIRST_SECONDS = 0.2
_LONGEST_SECONDS = 10.0
# Of 2 to the power of more, nothing is left below the longest.
_DOUBLINGS_LIMIT = 16


class Backoff:
    """Pauses that double up to a limit, each drawn from the upper half of its range."""

    def __init__(self, *, longest_seconds: float = _LONGEST_SECONDS) -> None:
        self._longest_seconds = longest_seconds
        self._failures = 0

    def pause_seconds(self, wished_seconds: float | None = None) -> float:
        """Return the next pause; not shorter than the server wished, within the limit."""
        doubled = _FIRST_SECONDS * 2.0 ** min(self._failures, _DOUBLINGS_LIMIT)
        self._failures += 1
        pause = max(doubled, wished_seconds or 0.0)
        return min(pause, self._longest_seconds) * random.uniform(0.5, 1.0)  # noqa: S311

    def reset(self) -> None:
        """Begin again: an answer came."""
        self._failures = 0
