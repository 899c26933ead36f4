"""Randomness: what a step draws, for dropout say, depends on seed, step and place alone.

A run that goes on from a checkpoint then draws what it would have drawn without the stop, in any
layout. Ranks that compute the same draw the same. What a script draws outside of steps comes from
generators whose states a checkpoint holds.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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
            # by itself: torch.manual_seed takes a traceback for each kind of device, every time
            torch.default_generator.manual_seed(int.from_bytes(digest[:_SEED_BYTES], "big"))
            if devices:
                torch.cuda.manual_seed(int.from_bytes(digest[:_SEED_BYTES], "big"))
            yield


def generator_states(device: torch.device) -> dict[str, Any]:
    """Return the states of the generators that a script draws from: Python's, numpy's, torch's."""
    states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    numpy = sys.modules.get("numpy")
    if numpy is not None:  # what is not imported has drawn nothing
        kind, keys, *rest = numpy.random.get_state()
        states["numpy"] = (kind, keys.tolist(), *rest)
    return states


def restore_generators(states: Mapping[str, Any], device: torch.device) -> None:
    """Let the script's generators go on from `states`, as far as this process has them."""
    random.setstate(states["python"])
    torch.set_rng_state(states["torch"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy" in states:
        numpy.random.set_state(states["numpy"])
