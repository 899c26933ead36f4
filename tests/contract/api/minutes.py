"""Minutes of the clock, in which requests are counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def in_one_minute(ask: Callable[[], Found]) -> Found:
    """Return what `ask` finds within a minute: it is asked anew if one ends meanwhile.

    A sliding window weighs what was counted in the minute before by the share of it that it still
    covers, so whoever asks across the turn may be given one more. Each time, `ask` must be somebody
    of whom nothing was counted before.
    """
    while True:
        minute = time.time() // 60
        found = ask()
        if time.time() // 60 == minute:
            return found
