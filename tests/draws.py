"""How many random cases a test tries: all of them by `make test-full`, one of so many otherwise."""

from __future__ import annotations

import os

EVERYTHING = os.environ.get("MESHWRIGHT_TESTS") == "full"


def drawn(seeds: range, *, one_of: int) -> range:
    """Return the seeds that are tried."""
    return seeds if EVERYTHING else seeds[::one_of]


def of_drawn(count: int, *, one_of: int) -> int:
    """Return how many cases among those tried stand for `count` among all."""
    return count if EVERYTHING else count // one_of
