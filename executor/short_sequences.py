"""Short sequences: batches that have fewer tokens a row than the plan, and what is said of it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator


class ShortSequences:
    """The shortest sequences of this rank's batches, where they were not as long as planned."""

    def __init__(self, planned_length: int | None) -> None:
        self._planned_length = planned_length
        self._shortest_share = 1.0

    def note(self, length_share: float, *, is_told: bool) -> None:
        """Note that a batch has `length_share` of the planned length; the first is warned of."""
        if is_told and length_share < 1.0 == self._shortest_share:
            warnings.warn(next(self._told(length_share)), stacklevel=2)
        self._shortest_share = min(self._shortest_share, length_share)

    def differences(self) -> Iterator[str]:
        """Yield a sentence if there were any."""
        if self._shortest_share < 1.0:
            yield from self._told(self._shortest_share)

    def _told(self, length_share: float) -> Iterator[str]:
        planned = self._planned_length or 0
        yield (
            f"batches have sequences of as few as {round(length_share * planned)} tokens, and time "
            f"and memory are predicted for {planned}"
        )
