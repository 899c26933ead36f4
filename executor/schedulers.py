"""Schedulers: learning rates of all of a rank's optimizers, changed as those of one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

SchedulerFunction = Callable[[Optimizer], LRScheduler]
# Source: schedulers of `torch/optim/lr_scheduler.py` of torch 2.13: what has one item a group.
_OF_GROUPS = frozenset(
    {"base_lrs", "_last_lr", "min_lrs", "max_lrs", "base_momentums", "max_momentums"}
)


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
        """Take over a state, which is that of the first optimizer that was saved."""
        for member in self._members:
            load_scheduler(member, state_dict)


def load_scheduler(scheduler: LRScheduler, state_dict: dict[str, Any]) -> None:
    """Let `scheduler` take over the state of one like it, of an optimizer with other groups maybe.

    What there is for each group it keeps as its own optimizer has it: the rates that groups began
    with and have by now, which a checkpoint holds with them, and what it was made with.
    """
    own = [(each, _of_groups(each)) for each in _with_inner(scheduler)]
    scheduler.load_state_dict(copy.deepcopy(state_dict))
    for each, lists in own:
        vars(each).update(lists)
        groups = each.optimizer.param_groups
        if "base_lrs" in lists:
            each.base_lrs = [group["initial_lr"] for group in groups]
        if "_last_lr" in lists:
            each._last_lr = [group["lr"] for group in groups]  # noqa: SLF001 - no setter


def _with_inner(scheduler: LRScheduler) -> Iterator[LRScheduler]:
    """Yield a scheduler and those that it is made of, as `SequentialLR` is."""
    yield scheduler
    for inner in getattr(scheduler, "_schedulers", ()):
        yield from _with_inner(inner)


def _of_groups(scheduler: LRScheduler) -> dict[str, list[Any]]:
    return {key: list(vars(scheduler)[key]) for key in _OF_GROUPS & vars(scheduler).keys()}
