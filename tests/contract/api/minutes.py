"""Minutes of the clock, in which requests are counted."""

from __future__ import annotations

import time

_MARGIN_SECONDS = 6.0


def within_one_minute() -> None:
    """Wait for the next minute where this one is about to end.

    A sliding window weighs what was counted in the minute before by the share of it that it still
    covers, so whoever asks across the turn may be given one more.
    """
    left = 60.0 - time.time() % 60.0
    if left < _MARGIN_SECONDS:
        time.sleep(left)
