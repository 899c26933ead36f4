"""Device choice: on which kind of device a plan's ranks run here."""

from __future__ import annotations

import torch

from executor.errors import LaunchError
from planner.executor_fields import PLANNED_ONLY
from planner.schema.plan import Plan

CPU_DEVICE_PREFIX = "cpu"


def chosen_device(plan: Plan, asked: str | None, *, local_ranks: int) -> str:
    """Return `cpu` or `cuda`: as asked, else what the plan's cluster is made of.

    Raises:
        LaunchError: if this machine has not the devices.
    """
    kinds = sorted({group.device for group in plan.cluster.resolved.node_groups})
    is_for_cpu = all(kind.startswith(CPU_DEVICE_PREFIX) for kind in kinds)
    _refuse_planned_only(kinds, asked)
    device_type = asked or ("cpu" if is_for_cpu else "cuda")
    available = visible_devices()
    if device_type == "cpu" or available >= local_ranks:
        return device_type
    here = f"{local_ranks} rank{'s' * (local_ranks > 1)} here"
    if is_for_cpu:
        raise LaunchError(
            f"the plan has {here}, which want a CUDA device each, and this machine has {available}",
            field="--device",
            value=device_type,
            remedy=f"leave it out: the plan is for {', '.join(kinds)}",
        )
    raise LaunchError(
        f"the plan has {here} on {', '.join(kinds)}",
        field="device",
        value=f"{available} CUDA devices on this machine",
        remedy=f"plan for what this machine has (CPU ranks: cluster {local_ranks}xcpu-gloo), "
        "force CPU ranks with --device cpu, or, where CUDA_VISIBLE_DEVICES is set, let a rank see "
        "its own device alone or all of its node's",
    )


def visible_devices() -> int:
    """Return how many CUDA devices this process sees."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _refuse_planned_only(kinds: list[str], asked: str | None) -> None:
    """Raise where the plan is for devices that no ranks of ours run on, unless CPUs are asked for.

    Raises:
        LaunchError: naming the device.
    """
    others = [kind for kind in kinds if kind in PLANNED_ONLY]
    if not others or asked == "cpu":
        return
    raise LaunchError(
        "can be planned for, and not run on",
        field="plan.cluster.node_groups.device",
        value=", ".join(others),
        remedy="export the plan to a program that runs there, or force CPU ranks with --device cpu",
    )
