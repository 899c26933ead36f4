"""Ending: ranks whose script is over wait for the others, and learn if these go on without them.

A rank that ends early leaves the others waiting in a collective until it times out. What it would
meet them in here is a collective too, and of another kind: so ranks tell the launch's store which
step they have begun, and who has ended looks there first.
"""

from __future__ import annotations

import time
from contextlib import suppress

from torch import distributed
from torch.distributed.distributed_c10d import Store, _get_default_store

from executor.errors import ModelMismatchError
from executor.step_rows import Measured

_BEGUN = "meshwright/begun"
_ENDED = "meshwright/ended"
_FAILED = "meshwright/failed"
_LOOK_SECONDS = 0.05
_NAMED = 4


class Ending:
    """What this rank and others tell of the steps that they have begun."""

    def __init__(self, store: Store, *, rank: int, world_size: int) -> None:
        self._store = store
        self._rank = rank
        self._world_size = world_size
        self._begun = 0
        self._has_ended = False

    @staticmethod
    def of_process() -> Ending:
        """Return the ending of a rank of the initialised process group."""
        return Ending(
            _get_default_store(),
            rank=distributed.get_rank(),
            world_size=distributed.get_world_size(),
        )

    def step_begins(self) -> None:
        """Note that this rank begins a step, and tell the others.

        What all ranks do together after the script is no step of it.
        """
        if self._has_ended:
            return
        self._begun += 1
        self._store.set(f"{_BEGUN}/{self._rank}", str(self._begun))

    def step_ended(self, step: int, measured: Measured) -> None:
        """Do nothing: others are told of a step as it begins."""

    def wait(self, seconds: float) -> None:
        """Return once all ranks have ended after the same step.

        Raises:
            ModelMismatchError: if others have begun a step that this rank never will, or have not
                ended after so many seconds.
        """
        self._has_ended = True
        self._store.set(f"{_ENDED}/{self._rank}", str(self._begun))
        ended = [f"{_ENDED}/{rank}" for rank in range(self._world_size)]
        until = time.monotonic() + seconds
        while not self._store.check(ended):
            # One is enough that is not itself.
            if self._told_begun(1 if self._rank == 0 else 0) > self._begun:
                raise self._ended_early("and other ranks have begun another step")
            if time.monotonic() > until:
                raise self._ended_early(f"and others have not for {seconds:.0f} s")
            time.sleep(_LOOK_SECONDS)
        if any(int(self._store.get(key)) != self._begun for key in ended):
            raise self._ended_early("and others after more or fewer")

    def tell_failure(self) -> None:
        """Tell other ranks that this one ends by an error, if there is who hears of it."""
        with suppress(distributed.DistError):  # the store may be gone with the node that held it
            self._store.set(_FAILED, str(self._rank))

    def has_failed(self) -> bool:
        """Return whether a rank has told that it ends by an error."""
        try:
            return bool(self._store.check([_FAILED]))
        except distributed.DistError:
            return False

    @property
    def begun_steps(self) -> int:
        """Return how many steps this rank has begun."""
        return self._begun

    def behind(self) -> dict[int, int]:
        """Return the steps of ranks that have begun fewer than this one, none where it cannot ask.

        It is for a rank that waited in vain: the store may be gone with the node that held it.
        """
        try:
            told = {rank: self._told_begun(rank) for rank in range(self._world_size)}
        except distributed.DistError:
            return {}
        return {rank: begun for rank, begun in told.items() if begun < self._begun}

    def behind_words(self) -> str:
        """Return which ranks have begun fewer steps than this one, nothing where none has."""
        told = [f"rank {rank} had begun {begun}" for rank, begun in sorted(self.behind().items())]
        return f"{', '.join(told[:_NAMED])} of {self._begun} steps" if told else ""

    def _told_begun(self, rank: int) -> int:
        """Return the last step that `rank` has told of, 0 before its first."""
        key = f"{_BEGUN}/{rank}"
        return int(self._store.get(key)) if self._store.check([key]) else 0

    def _ended_early(self, what: str) -> ModelMismatchError:
        return ModelMismatchError(
            f"has ended on rank {self._rank} after {self._begun} steps, {what}",
            field="script",
            remedy="take as many steps on every rank: let all of them see the same batches, and "
            "leave the loop for the same reason",
        )
