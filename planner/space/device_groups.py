"""Device groups: which kind of device each stage of a strategy sits on, and whether it can."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from planner.cost.price_list import device_order_of
from planner.cost.schedule import rank_of_virtual_stage
from planner.hardware import ClusterHardware
from planner.schema.strategy import Strategy
from planner.space.breach import Breach


def device_breaches(hardware: ClusterHardware, strategy: Strategy) -> Iterator[Breach]:
    """Yield what keeps the strategy's stages from their devices.

    Stages are of equal size, each on one kind of device; those of one kind follow one another, or
    fill whole nodes wherever they do.
    """
    counts = [kind.device_count for kind in hardware.kinds]
    unit = sum(counts) // gcd(*counts)
    if strategy.pipeline_parallel_degree % unit:
        kinds = " + ".join(f"{kind.device_count} {kind.device_group}" for kind in hardware.kinds)
        yield Breach(
            field="pipeline_parallel_degree",
            value=strategy.pipeline_parallel_degree,
            problem=f"stages of equal size, each on one kind of device, do not fill {kinds}",
            remedy=f"use a multiple of {unit}",
        )
        return
    unknown = tuple(_unknown_groups(hardware, strategy))
    yield from unknown or _misplaced_stages(hardware, strategy)


def _unknown_groups(hardware: ClusterHardware, strategy: Strategy) -> Iterator[Breach]:
    known = {name for kind in hardware.kinds for name in kind.node_groups}
    for index, stage in enumerate(strategy.stages or ()):
        if stage.device_group is not None and stage.device_group not in known:
            yield Breach(
                field=f"stages.{index}.device_group",
                value=stage.device_group,
                problem="is not a node group of the cluster",
                remedy=f"use one of {', '.join(sorted(known))}",
            )


def _misplaced_stages(hardware: ClusterHardware, strategy: Strategy) -> Iterator[Breach]:
    degree = strategy.pipeline_parallel_degree
    kinds = hardware.stage_kinds(
        device_order_of(strategy, hardware), pipeline_parallel_degree=degree
    )
    for index, stage in enumerate(strategy.stages or ()):
        rank = rank_of_virtual_stage(
            strategy.pipeline_schedule, pipeline_parallel_degree=degree, virtual_stage=index
        )
        expected = hardware.kinds[kinds[rank]]
        if stage.device_group is not None and stage.device_group not in expected.node_groups:
            yield Breach(
                field=f"stages.{index}.device_group",
                value=stage.device_group,
                problem="stages of one kind of device follow one another or fill whole nodes, "
                f"{_shares(hardware, kinds)}, so that stage {index} is on {expected.device_group}",
                remedy=f"use {expected.device_group}, or leave device_group out",
            )


def _shares(hardware: ClusterHardware, kinds: tuple[int, ...]) -> str:
    """Return how many pipeline ranks each kind has, in order: `8 on h100 then 8 on a100`."""
    order = dict.fromkeys(kinds)
    return " then ".join(f"{kinds.count(k)} on {hardware.kinds[k].device_group}" for k in order)
