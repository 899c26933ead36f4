"""How many random cases a test tries: all of them by `make test-full`, every so many otherwise."""

from __future__ import annotations

import os
from collections.abc import Sequence

FULL = os.environ.get("MESHWRIGHT_TESTS") == "full"


def drawn(seeds: Sequence[int], *, each: int) -> Sequence[int]:
    """Return the seeds where everything is tried, and else one of so many."""
    return seeds if FULL else seeds[::each]
