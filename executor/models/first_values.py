"""First values: what parameters begin with, whatever layout they lie in.

A rank asks for its own part of each by its name in the unsplit model.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

import torch

from executor.models.declaration import InitialValue
from executor.tensor_source import Ranges

_SEED_BYTES = 7


class FirstValues(Protocol):
    """What a model begins with."""

    def piece(self, name: str, shape: torch.Size, ranges: Ranges) -> torch.Tensor:
        """Return a part of the parameter `name`, which has `shape` in the unsplit model."""

    def buffer(self, name: str, shape: torch.Size) -> torch.Tensor | None:
        """Return a buffer that is kept with the weights, `None` where none is known."""

    def forget(self) -> None:
        """Free what was held to answer."""


class DrawnValues:
    """Values drawn from a generator that is seeded with the parameter's name."""

    def __init__(self, initial_value: InitialValue, *, seed: int) -> None:
        self._initial_value = initial_value
        self._seed = seed

    def piece(self, name: str, shape: torch.Size, ranges: Ranges) -> torch.Tensor:
        """Return a part of the parameter `name`."""
        return self._initial_value(name, shape, _generator(name, self._seed))[ranges]

    def buffer(self, _name: str, _shape: torch.Size) -> torch.Tensor | None:
        """Return nothing: buffers are computed."""
        return None

    def forget(self) -> None:
        """Do nothing."""


def _generator(name: str, seed: int) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:_SEED_BYTES], "big"))
