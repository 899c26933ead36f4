"""Schedulers: learning rates of all of a rank's optimizers, changed as those of one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

SchedulerFunction = Callable[[Optimizer], LRScheduler]
_OF_ITS_GROUPS = ("base_lrs", "_last_lr")


class Schedulers:
    """One scheduler for each optimizer, all in the same state but for their groups' rates."""

    def __init__(self, optimizers: Iterable[Optimizer], function: SchedulerFunction) -> None:
        self._members = [function(optimizer) for optimizer in optimizers]

    def step(self, *arguments: Any, **named: Any) -> None:
        """Take the next rates."""
        for member in self._members:
            member.step(*arguments, **named)

    def get_last_lr(self) -> list[float]:
        """Return the rates of the first optimizer's groups; none where this rank trains nothing."""
        return [float(rate) for rate in self._members[0].get_last_lr()] if self._members else []

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all; it is empty on a rank that trains nothing."""
        return self._members[0].state_dict() if self._members else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state; an optimizer whose groups are others keeps its own rates."""
        for member in self._members:
            state = copy.deepcopy(state_dict)
            for key in _OF_ITS_GROUPS:
                own = getattr(member, key, None)
                if isinstance(own, list) and len(own) != len(state.get(key, own)):
                    state[key] = own
            member.load_state_dict(state)
