"""AdamW's own memory on a GPU is a difference from the plan, unless that counted it."""

from __future__ import annotations

import pytest
import torch

from executor.apply.temporaries import optimizer_differences
from planner.schema.job import Job


def adamw(*, fused: bool | None = None, foreach: bool | None = None) -> torch.optim.Optimizer:
    return torch.optim.AdamW([torch.nn.Parameter(torch.zeros(2))], fused=fused, foreach=foreach)


def differences(optimizer: torch.optim.Optimizer, *, is_planned: bool = False) -> list[str]:
    """Return what is said of an optimizer, were this device a GPU."""
    job = Job.from_fields({"foreach_optimizer": is_planned}, source="job")
    return list(optimizer_differences([optimizer], job=job, foreach_devices=("cpu",)))


def test_plain_adamw_is_said_with_both_ways_out() -> None:
    (said,) = differences(adamw())
    assert "fused=True" in said
    assert "job.foreach_optimizer: true" in said


@pytest.mark.parametrize("option", ["fused", "one by one"])
def test_adamw_that_updates_fused_or_one_by_one_takes_nothing(option: str) -> None:
    optimizer = adamw(fused=True) if option == "fused" else adamw(foreach=False)
    assert differences(optimizer) == []


def test_nothing_is_said_of_what_the_plan_counts_of_other_optimizers_and_of_cpus() -> None:
    job = Job.from_fields({}, source="job")
    assert differences(adamw(), is_planned=True) == []
    assert differences(torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))])) == []
    assert list(optimizer_differences([adamw()], job=job)) == []
