"""Temporaries: what an optimizer's step takes beside its states, if the plan did not count it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import torch

from planner.schema.job import Job

_FOREACH_DEVICES = ("cuda",)


def optimizer_differences(
    optimizers: Iterable[torch.optim.Optimizer],
    *,
    job: Job,
    foreach_devices: Collection[str] = _FOREACH_DEVICES,
) -> Iterator[str]:
    """Yield a sentence where AdamW's step takes memory of its own that the plan did not count.

    Source: torch 2.13, `_default_to_fused_or_foreach` and `_multi_tensor_adam` in torch/optim: on
    GPUs all parameters are updated at once unless `fused` or `foreach` says otherwise.
    """
    if job.foreach_optimizer:
        return
    if any(_is_foreach(optimizer, foreach_devices) for optimizer in optimizers):
        yield (
            "AdamW updates all parameters at once, with 4 bytes for each that the plan does not "
            "count: pass fused=True to it, or plan with job.foreach_optimizer: true"
        )


def _is_foreach(optimizer: torch.optim.Optimizer, foreach_devices: Collection[str]) -> bool:
    if not isinstance(optimizer, torch.optim.Adam):
        return False
    return any(
        group.get("foreach") is not False
        and not group.get("fused")
        and any(parameter.device.type in foreach_devices for parameter in group["params"])
        for group in optimizer.param_groups
    )
