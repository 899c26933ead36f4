"""Collective fit: a device profile whose network is as nccl-tests measured it.

Over the GPUs of one node the innermost level is fitted, as `meshwright profile` fits one. Over
several nodes the inner levels stay and the outermost one is fitted: latency and bandwidth with the
least sum of squared logarithmic errors of the planner's own collective times, by a grid made finer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from planner.cli.machine_profile import Fields, level_fields
from planner.cost.collectives import (
    all_gather_seconds,
    all_reduce_seconds,
    all_to_all_seconds,
    reduce_scatter_seconds,
    send_recv_seconds,
)
from planner.cost.configuration import Floats
from planner.errors import InputError
from planner.hardware import cluster_hardware, device_profile
from planner.importers.cluster.nccl_tests import CollectiveTable
from planner.network import Level
from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.figures import CollectiveFigure
from planner.units import GIB

_ROUNDS, _STEPS = 6, 7
_COLLECTIVES = {
    "all_reduce": all_reduce_seconds,
    "all_gather": all_gather_seconds,
    "reduce_scatter": reduce_scatter_seconds,
    "all_to_all": all_to_all_seconds,
}


def fitted_cluster(
    tables: Sequence[CollectiveTable], *, name: str, device: str, source: str
) -> tuple[Cluster, float]:
    """Return the cluster of the tables' ranks with its fitted network, and the mean error.

    The error is the mean of the ratios of predicted and measured seconds, the larger over the
    smaller, less one.

    Raises:
        InputError: if the device is unknown, or hosts have different numbers of ranks.
    """
    profile = device_profile(device)
    hosts = max(table.host_count for table in tables)
    ranks = max(table.rank_count for table in tables)
    if ranks % hosts:
        raise InputError(
            "has hosts with different numbers of ranks",
            field=source,
            value=f"{ranks} ranks on {hosts} hosts",
            remedy="measure with as many ranks on every host",
        )
    fields = profile.model_dump(mode="json", exclude_none=False)
    within = [f for table in tables if table.host_count == 1 for f in table.figures]
    across = [f for table in tables if table.host_count > 1 for f in table.figures]
    said = f"nccl-tests, {source}"
    levels: list[Fields] = list(fields["levels"])
    if within:
        fitted = level_fields(within, said)
        count = max(figure.rank_count for figure in within)
        levels = [{**fitted, "name": levels[0]["name"], "device_count": count}, levels[-1]]
    fields["levels"] = levels
    cluster = _cluster(fields, name=name, hosts=hosts, ranks=ranks)
    if across:
        inner = cluster_hardware(cluster).kinds[0].levels
        outer = _outer_level(across, inner)
        levels[-1] = {
            **levels[-1],
            "bandwidth_gb_per_second": outer.bandwidth_bytes_per_second / 1e9,
            "latency_us": outer.latency_seconds * 1e6,
            "all_reduce_bandwidth_ratio": outer.all_reduce_bandwidth_ratio,
            "collectives": {},
            "source": said,
        }
        cluster = _cluster(fields, name=name, hosts=hosts, ranks=ranks)
    used = cluster_hardware(cluster).kinds[0].levels
    return cluster, _mean_error([*within, *across], used)


def _cluster(fields: Fields, *, name: str, hosts: int, ranks: int) -> Cluster:
    device = f"{fields['device'].removesuffix('-measured')}-measured"
    group = NodeGroup(
        name=device,
        device=device,
        node_count=hosts,
        devices_per_node=ranks // hosts,
        memory_bytes=fields["memory_gib"] * GIB,
        host_memory_bytes=fields["host"]["memory_gib_per_device"] * GIB * (ranks // hosts),
    )
    own = {**fields, "device": device}
    return Cluster(name=name, node_groups=(group,), device_profiles={device: own})


def _outer_level(figures: Sequence[CollectiveFigure], levels: tuple[Level, ...]) -> Level:
    """Return the outermost level that fits best, the others as they are."""
    *inner, start = levels
    best = replace(start, collectives=())
    width = 30.0
    for _ in range(_ROUNDS):
        factors = np.geomspace(1.0 / width, width, _STEPS)
        around = best
        candidates = (
            replace(
                around,
                latency_seconds=around.latency_seconds * float(a),
                bandwidth_bytes_per_second=around.bandwidth_bytes_per_second * float(b),
            )
            for a, b in product(factors, factors)
        )
        best = min(candidates, key=lambda level: _loss(figures, (*inner, level)))
        width **= 0.5
    return best


def _loss(figures: Sequence[CollectiveFigure], levels: tuple[Level, ...]) -> float:
    return float((_errors(figures, levels) ** 2).sum())


def _mean_error(figures: Sequence[CollectiveFigure], levels: tuple[Level, ...]) -> float:
    return float(np.expm1(np.abs(_errors(figures, levels))).mean())


def _errors(figures: Sequence[CollectiveFigure], levels: tuple[Level, ...]) -> Floats:
    """Return the logarithms of predicted over measured seconds, collective by collective."""
    parts = []
    for kind, ranks in sorted({(figure.kind, figure.rank_count) for figure in figures}):
        alike = [f for f in figures if (f.kind, f.rank_count) == (kind, ranks)]
        sizes = np.array([figure.message_bytes for figure in alike], dtype=np.float64)
        seconds = np.array([figure.seconds for figure in alike])
        if kind == "send_recv":
            predicted = send_recv_seconds(sizes, distance=ranks // 2, levels=levels)
        else:
            predicted = _COLLECTIVES[kind](sizes, rank_count=ranks, stride=1, levels=levels)
        parts.append(np.log(np.maximum(predicted, 1e-12) / seconds))
    return np.concatenate(parts)
