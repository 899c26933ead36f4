"""Needs of a rank with two layers, each kept (10 bytes) or moved to the host (2, and 5 once)."""

from __future__ import annotations

import numpy as np
import pytest

from planner.ilp.feasibility import least_device_bytes, least_host_bytes
from planner.ilp.instance import Instance, Kind
from planner.ilp.lagrangian_bound import least_memory_bytes
from planner.ilp.problem import Effort


def a_kind(
    count: int,
    *,
    memory: list[float],
    transient: list[float],
    host: list[float],
    pinned: int | None = None,
) -> Kind:
    """Layers that take no time."""
    none = np.zeros((1, len(memory)))
    return Kind(
        count=count,
        pinned_stage=pinned,
        pace=none,
        fill=none,
        end=none,
        memory=np.array([memory]),
        transient=np.array([transient]),
        host=np.array([host]),
        kept=none,
        choice=tuple(range(len(memory))),
    )


def a_rank(*, device_bytes: float, host_bytes: float) -> Instance:
    """Two layers and nothing else on one rank."""
    nothing = np.zeros(1)
    edge = {"memory": [0.0], "transient": [0.0], "host": [0.0], "pinned": 0}
    layers = a_kind(2, memory=[10.0, 2.0], transient=[0.0, 5.0], host=[0.0, 4.0])
    return Instance(
        repeat_count=1.0,
        stage_pace=nothing,
        stage_fill=nothing,
        stage_bytes=nothing,
        stage_end=nothing,
        capacity_bytes=np.array([device_bytes]),
        host_capacity_bytes=np.array([host_bytes]),
        least_blocks=1,
        holders=(0,),
        kinds=(a_kind(1, **edge), layers, a_kind(1, **edge)),
        chain=((1, 2),),
    )


def test_the_device_needs_what_its_leanest_packing_takes_with_its_transient():
    """Both layers on the host leave 2 + 2 and 5 once: the bound of 4 has no transient."""
    rank = a_rank(device_bytes=8.0, host_bytes=0.0)
    assert least_memory_bytes(rank) == 4.0
    assert least_host_bytes(rank, effort=Effort()) is None
    assert least_device_bytes(rank, effort=Effort()) == 9.0


def test_the_host_needs_what_the_layers_moved_to_it_take():
    """Nine bytes of the device hold neither layer whole: both are moved, 4 bytes each."""
    assert least_host_bytes(a_rank(device_bytes=9.0, host_bytes=7.0), effort=Effort()) == 8.0


def test_one_layer_on_the_host_is_enough_where_the_device_holds_the_other():
    """10 + 2 and 5 once are on the device."""
    assert least_host_bytes(a_rank(device_bytes=17.0, host_bytes=1.0), effort=Effort()) == 4.0


@pytest.mark.parametrize("least_bytes", [least_host_bytes, least_device_bytes])
def test_without_effort_nothing_is_known(least_bytes):
    assert least_bytes(a_rank(device_bytes=8.0, host_bytes=0.0), effort=Effort(most=0.0)) is None
