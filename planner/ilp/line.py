"""Line: configurations that nobody has looked into, by their keys, taken from the front.

A search has them by the hundred thousand, so that they stand in arrays. Those that were taken out
of turn stay where they are until they come to the front: `stages` says who still waits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.cost.configuration import Floats, Integers

Stages = NDArray[np.int8]


@dataclass(slots=True)
class Line:
    """Configurations that wait at a `stage`; `stages` [configurations] are where all are.

    `keys` and `indices` [places] are in the order of keys, and of indices where keys are equal.
    """

    keys: Floats
    indices: Integers
    stages: Stages
    stage: int

    def __len__(self) -> int:
        """Return how many places are left, those of configurations that went elsewhere too."""
        return len(self.keys)

    def head(self) -> tuple[float, int] | None:
        """Return the least key with its configuration, None where nobody waits."""
        start = 0
        while start < len(self.keys) and self.stages[self.indices[start]] != self.stage:
            start += 1
        self._drop(start)
        return (float(self.keys[0]), int(self.indices[0])) if len(self.keys) else None

    def take(self, most: int, *, below: float, up_to: float = float("inf")) -> list[int]:
        """Remove and return up to `most` with keys below one number, and up to another."""
        end = min(np.searchsorted(self.keys, below), np.searchsorted(self.keys, up_to, "right"))
        waiting = np.flatnonzero(self.stages[self.indices[:end]] == self.stage)[:most]
        found: list[int] = self.indices[waiting].tolist()
        self._drop(int(waiting[-1]) + 1 if len(found) else int(end))
        return found

    def join(self, keys: Floats, indices: Integers) -> None:
        """Let some more wait, each at its place."""
        keys, indices = np.concatenate([self.keys, keys]), np.concatenate([self.indices, indices])
        order = np.lexsort((indices, keys))
        self.keys, self.indices = keys[order], indices[order]

    def _drop(self, count: int) -> None:
        self.keys, self.indices = self.keys[count:], self.indices[count:]


def line_of(keys: Floats, stages: Stages, stage: int) -> Line:
    """Return a line of all configurations with finite keys [configurations]."""
    order = np.argsort(keys, kind="stable")[: np.count_nonzero(np.isfinite(keys))]
    return Line(keys=keys[order], indices=order, stages=stages, stage=stage)
