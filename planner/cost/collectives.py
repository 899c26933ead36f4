"""Collectives: seconds of a collective over a group of ranks placed on network levels.

Ranks are laid out with tensor parallel innermost, then context, data shard, data replicate, and
pipeline outermost, so a group of n ranks with stride d lies within the first level whose domain
holds n x d devices. Over a level, with b bytes moved per rank:

    t = (latency^e + (b / bandwidth)^e)^(1/e)

A group that spans nodes moves at the least of the inner level's bandwidth and of the outer level's
times the group's ranks inside one domain, since each drives its own link.

Source: bus factors as in nccl-tests `PERFORMANCE.md`; the p-norm is fitted on measured NCCL tables.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from planner.cost.configuration import Floats
from planner.hardware import Level


def all_reduce_seconds(
    message_bytes: ArrayLike, *, rank_count: ArrayLike, stride: ArrayLike, levels: tuple[Level, ...]
) -> Floats:
    """Return seconds until every rank holds the sum: 2 (n - 1) / n of the message is moved."""
    n = np.asarray(rank_count, dtype=np.float64)
    moved = 2.0 * (n - 1.0) / n * np.asarray(message_bytes)
    return _over_levels(moved, n, stride, levels, reduces=True)


def all_gather_seconds(
    message_bytes: ArrayLike, *, rank_count: ArrayLike, stride: ArrayLike, levels: tuple[Level, ...]
) -> Floats:
    """Return seconds until every rank holds the whole message: (n - 1) / n of it is moved.

    A reduce_scatter of the same message takes as long.
    """
    n = np.asarray(rank_count, dtype=np.float64)
    moved = (n - 1.0) / n * np.asarray(message_bytes)
    return _over_levels(moved, n, stride, levels, reduces=False)


def all_to_all_seconds(
    message_bytes: ArrayLike, *, rank_count: ArrayLike, stride: ArrayLike, levels: tuple[Level, ...]
) -> Floats:
    """Return seconds until each rank's message is spread evenly over all ranks.

    What stays inside a domain and what leaves it go over different links at once.
    """
    n = np.asarray(rank_count, dtype=np.float64)
    total = np.zeros(np.broadcast(n, np.asarray(message_bytes), np.asarray(stride)).shape)
    inside_before = np.ones_like(n)
    for level in levels:
        inside = np.clip(level.device_count / np.asarray(stride, dtype=np.float64), 1.0, n)
        moved = (inside - inside_before) / n * np.asarray(message_bytes)
        over_level = _p_norm(
            level, moved / level.bandwidth_bytes_per_second, inside > inside_before, n
        )
        total = np.maximum(total, over_level)
        inside_before = inside
    return total


def send_recv_seconds(
    message_bytes: ArrayLike, *, distance: ArrayLike, levels: tuple[Level, ...]
) -> Floats:
    """Return seconds to send a message to the rank `distance` devices away."""
    away = np.asarray(distance, dtype=np.float64)
    seconds = np.zeros(np.broadcast(away, np.asarray(message_bytes)).shape)
    reached = np.zeros_like(away, dtype=np.bool_)
    for level in levels:
        last = level is levels[-1]
        here = ~reached & ((level.device_count > away) | last)
        transfer = np.asarray(message_bytes) / level.bandwidth_bytes_per_second
        two = np.full_like(away, 2.0)
        seconds = seconds + _p_norm(level, transfer, here & (transfer > 0), two)
        reached |= here
    return seconds


def _over_levels(
    moved: Floats, n: Floats, stride: ArrayLike, levels: tuple[Level, ...], *, reduces: bool
) -> Floats:
    """Return the p-norm time of `moved` bytes at the narrowest level that the group spans."""
    away = np.asarray(stride, dtype=np.float64)
    span = away * n
    shape = np.broadcast(moved, span).shape
    seconds = np.zeros(shape)
    bandwidth = np.full(shape, np.inf)
    inner_domain = np.ones_like(away)
    covered = np.zeros(shape, dtype=np.bool_)
    for level in levels:
        links = np.maximum(inner_domain / away, 1.0)
        own = level.bandwidth_bytes_per_second * np.minimum(links, n)
        ratio = level.all_reduce_bandwidth_ratio if reduces else 1.0
        in_switch = np.where(n > 4.0, ratio, min(ratio, 1.0))
        bandwidth = np.where(covered, bandwidth, np.minimum(bandwidth, own * in_switch))
        last = level is levels[-1]
        here = ~covered & ((level.device_count >= span) | last)
        seconds = np.where(here, _p_norm(level, moved / bandwidth, n > 1.0, n), seconds)
        covered |= here
        inner_domain = np.full_like(away, float(level.device_count))
    return seconds


def _p_norm(level: Level, transfer: Floats, active: ArrayLike, n: Floats) -> Floats:
    """Return (latency^e + transfer^e)^(1/e), latency growing with log2 n from its fit at 8."""
    latency = level.latency_seconds * np.maximum(np.log2(np.maximum(n, 1.0)), 1.0) / 3.0
    exponent = level.norm_exponent
    norm = (latency**exponent + transfer**exponent) ** (1.0 / exponent)
    return np.where(active, norm, 0.0)
