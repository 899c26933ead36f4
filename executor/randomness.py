"""Randomness: what a step draws, for dropout say, depends on seed, step and place alone.

A run that goes on from a checkpoint then draws what it would have drawn without the stop, and no
state of generators has to be kept for every rank. Ranks that compute the same draw the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from executor.mesh import CONTEXT, TENSOR, RankMesh

_SEED_BYTES = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """Where a rank's draws come from: the run's seed and the rank's place among others.

    `place` tells ranks apart that see different tokens or hold different stages.
    """

    seed: int
    place: tuple[int, ...]
    device: torch.device

    @staticmethod
    def of(mesh: RankMesh, *, seed: int, splits_sequence: bool, device: torch.device) -> Draws:
        """Return a rank's draws; tensor-parallel ranks differ where each has its own tokens."""
        part = mesh.coordinate(TENSOR) if splits_sequence else 0
        place = (mesh.stage, mesh.data_index, mesh.coordinate(CONTEXT), part)
        return Draws(seed=seed, place=place, device=device)

    @contextmanager
    def of_step(self, step: int) -> Iterator[None]:
        """Draw anew inside the block; streams outside of it go on as if it had drawn nothing."""
        text = ":".join(str(number) for number in (self.seed, step, *self.place))
        digest = hashlib.sha256(text.encode()).digest()
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(int.from_bytes(digest[:_SEED_BYTES], "big"))
            yield
