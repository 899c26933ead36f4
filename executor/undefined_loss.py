"""Undefined loss: what becomes of a step whose loss is no finite number, and what is said of it."""

from __future__ import annotations

import math
import sys
from typing import Literal, get_args

import torch
from torch import distributed

from executor.agreement import everyone
from executor.errors import ModelMismatchError, UndefinedLossError
from executor.local_tensor import local_tensor
from planner.schema.run import UndefinedLosses

Reaction = Literal["continue", "skip", "stop"]


class LossWatch:
    """Looks at the loss of each step.

    A run goes on as plain torch does where the reaction is `continue`. To `skip` a step's update or
    to `stop`, the loss has to be known before the optimizer runs: a wait for the device.
    """

    def __init__(self, reaction: Reaction) -> None:
        if reaction not in get_args(Reaction):
            raise ModelMismatchError(
                "is not a reaction to a loss that is not finite",
                field="on_undefined_loss",
                value=reaction,
                remedy=f"use one of {', '.join(get_args(Reaction))}",
            )
        self._reaction = reaction
        self.found: UndefinedLosses | None = None

    @property
    def comes_first(self) -> bool:
        """Return whether the loss is looked at before the update."""
        return self._reaction != "continue"

    def is_usable(self, mean: float, own: torch.Tensor | None, *, step: int) -> bool:
        """Return whether step number `step` is to update anything.

        `mean` is the loss of the global batch, `own` this rank's part of it. A collective call
        where the mean is no finite number.

        Raises:
            UndefinedLossError: on every rank, if the run is to stop.
        """
        if math.isfinite(mean):
            return True
        ranks = tuple(rank for rank, is_it in enumerate(everyone(_is_undefined(own))) if is_it)
        self._note(step, ranks)
        where = f"on {'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}"
        if self._reaction == "stop":
            raise UndefinedLossError(
                f"is not a finite number in step {step}, {where}",
                field="loss",
                value=mean,
                remedy="look at that step's batch and learning rate, or pass "
                "on_undefined_loss='skip' to leave such steps out",
            )
        if self.found is not None and self.found.step_count == 1 and distributed.get_rank() == 0:
            done = "nothing is updated" if self._reaction == "skip" else "training goes on"
            line = f"loss is {mean} in step {step}, {where}: {done}"
            print(line, file=sys.stderr, flush=True)  # noqa: T201 - whoever watches should know
        return self._reaction == "continue"

    def _note(self, step: int, ranks: tuple[int, ...]) -> None:
        known = self.found or UndefinedLosses(first_step=step, ranks=ranks, step_count=0)
        self.found = known.model_copy(update={"step_count": known.step_count + 1})


def _is_undefined(loss: torch.Tensor | None) -> bool:
    if loss is None:
        return False
    return not bool(torch.isfinite(local_tensor(loss)).all())
