"""Schedulers that go on have their own optimizers' rates, whichever state was saved."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="no package torch")

import torch
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    CyclicLR,
    LambdaLR,
    LRScheduler,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

from executor.schedulers import SchedulerFunction, Schedulers
from executor.script_state import ScriptState

RATES = (0.8, 0.2)


def falling(optimizer: SGD) -> LRScheduler:
    return LambdaLR(optimizer, lambda step: 0.5**step)


def warmed(optimizer: SGD) -> LRScheduler:
    up = LambdaLR(optimizer, lambda step: (step + 1) / 2)
    return SequentialLR(optimizer, [up, falling(optimizer)], [1])


def chained(optimizer: SGD) -> LRScheduler:
    return ChainedScheduler([StepLR(optimizer, 2), falling(optimizer)], optimizer)


def cyclic(optimizer: SGD) -> LRScheduler:
    rate = optimizer.param_groups[0]["lr"]
    return CyclicLR(optimizer, rate, 4 * rate, step_size_up=3)


def once(optimizer: SGD) -> LRScheduler:
    return OneCycleLR(optimizer, 3 * optimizer.param_groups[0]["lr"], 9)


def reducing(optimizer: SGD) -> ReduceLROnPlateau:
    return ReduceLROnPlateau(optimizer, patience=0)


def optimizers() -> list[SGD]:
    """Two, as of two pipeline stages, with a group each, of other rates."""
    return [SGD([nn.Parameter(torch.zeros(1))], lr=rate, momentum=0.9) for rate in RATES]


def stepped(updated: list[SGD]) -> None:
    """Step all, as schedulers want it before they do."""
    for optimizer in updated:
        optimizer.step()


@pytest.mark.parametrize("function", [falling, warmed, chained, cyclic, once, reducing])
def test_each_goes_on_with_its_own_rates(
    function: Callable[[SGD], LRScheduler] | SchedulerFunction,
) -> None:
    """The state is the first's; groups come with the optimizers, as checkpoints have them."""
    values = (1.0,) if function is reducing else ()
    whole = optimizers()
    schedulers = Schedulers(whole, function)
    for _ in range(3):
        stepped(whole)
        schedulers.step(*values)
    again = optimizers()
    resumed = Schedulers(again, function)
    for optimizer, saved in zip(again, whole, strict=True):
        optimizer.load_state_dict(saved.state_dict())
    resumed.load_state_dict(schedulers.state_dict())
    for _ in range(3):
        stepped([*whole, *again])
        schedulers.step(*values)
        resumed.step(*values)
        rates = [optimizer.param_groups[0]["lr"] for optimizer in again]
        assert rates == [optimizer.param_groups[0]["lr"] for optimizer in whole]
        assert rates[1] == pytest.approx(rates[0] * RATES[1] / RATES[0])


def test_a_scheduler_that_a_script_keeps_itself_has_its_own_rates_too() -> None:
    first, second = optimizers()
    script = ScriptState(torch.device("cpu"))
    scheduler = falling(second)
    script.keep({"rates": scheduler})
    script.restore({"kept": {"rates": falling(first).state_dict()}, "generators": []})
    second.step()
    scheduler.step()
    assert second.param_groups[0]["lr"] == pytest.approx(0.1)
