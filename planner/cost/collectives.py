"""Collectives: seconds of a collective over a group of ranks placed on network levels.

Ranks are laid out with tensor parallel innermost, then context, data shard, data replicate, and
pipeline outermost. A group of n ranks with stride d fills aligned blocks of n x d devices, so it
lies within a domain of D devices only if n x d divides D. Otherwise it straddles domains, and

    inside(D) = gcd(D, n d) / d        (at least 1, at most n)

of its ranks surely share one: those that the largest common aligned block holds. A domain of 72
holds a group of 8, but of a group of 16 only 8. Each level that joins k > 1 such parts adds its
latency and bounds the bandwidth:

    t = (latency^e + (b / bandwidth)^e)^(1/e)
    latency   = sum over levels of alpha log2(k) / 3
    bandwidth = min over levels of beta x ranks inside the domain below

with b bytes moved per rank, alpha the level's latency (fitted on 8 ranks, hence the 3) and beta its
bandwidth per device: ranks that share the domain below each drive a link of their own. The exponent
is that of the outermost level that takes part.

Source: bus factors as in nccl-tests `PERFORMANCE.md`; the p-norm is fitted on measured NCCL tables;
that k parts take log2(k) steps is assumed, as for trees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from planner.cost.configuration import Floats
from planner.network import Level, levels_of

_HOPS_OF_A_FIT = 4.0  # a fit of small messages on 8 ranks over a hop of large ones
_SWITCH_RANKS_LEAST = 5.0  # switches reduce for more than four ranks; below it is a ring

_Part = tuple[Level, Floats, Floats]
"""A level with the group's ranks in one domain below it and in one of its own."""


def all_reduce_seconds(
    message_bytes: ArrayLike, *, rank_count: ArrayLike, stride: ArrayLike, levels: tuple[Level, ...]
) -> Floats:
    """Return seconds until every rank holds the sum: 2 (n - 1) / n of the message is moved."""
    n, levels = np.asarray(rank_count, dtype=np.float64), levels_of(levels, "all_reduce")
    moved = 2.0 * (n - 1.0) / n * np.asarray(message_bytes)
    if _all_alone(n):
        return np.zeros(np.broadcast(moved, np.asarray(stride)).shape)
    return _over_levels(moved, list(_parts(n, stride, levels)), reduces=True)


def all_gather_seconds(
    message_bytes: ArrayLike, *, rank_count: ArrayLike, stride: ArrayLike, levels: tuple[Level, ...]
) -> Floats:
    """Return seconds until every rank holds the whole message: (n - 1) / n of it is moved.

    A ring, whose hops take their time beside; an all_reduce of many ranks is a tree.
    """
    own = levels_of(levels, "all_gather")
    return _ring_collective_seconds(message_bytes, rank_count, stride, own)


def reduce_scatter_seconds(
    message_bytes: ArrayLike, *, rank_count: ArrayLike, stride: ArrayLike, levels: tuple[Level, ...]
) -> Floats:
    """Return seconds until every rank holds its share of the sum.

    As long as an all_gather of the same message, unless a level was measured otherwise.
    """
    own = levels_of(levels, "reduce_scatter")
    return _ring_collective_seconds(message_bytes, rank_count, stride, own)


def _ring_collective_seconds(
    message_bytes: ArrayLike, rank_count: ArrayLike, stride: ArrayLike, levels: tuple[Level, ...]
) -> Floats:
    n = np.asarray(rank_count, dtype=np.float64)
    moved = (n - 1.0) / n * np.asarray(message_bytes)
    if _all_alone(n):
        return np.zeros(np.broadcast(moved, np.asarray(stride)).shape)
    parts = list(_parts(n, stride, levels))
    return _over_levels(moved, parts, reduces=False) + _ring_seconds(n, parts)


def all_to_all_seconds(
    message_bytes: ArrayLike,
    *,
    rank_count: ArrayLike,
    stride: ArrayLike,
    levels: tuple[Level, ...],
    copies: int = 1,
) -> Floats:
    """Return seconds until each rank's message is spread evenly over all ranks.

    A level carries what leaves the domain below it, (n - inside) / n of the message, over each
    rank's own link; the slowest level sets the pace. Where a message is made of as many `copies` of
    every row, those for one domain are sent to it once: of D domains D (1 - (1 - 1/D)^copies) get
    any, on average.
    """
    n, levels = np.asarray(rank_count, dtype=np.float64), levels_of(levels, "all_to_all")
    message = np.asarray(message_bytes, dtype=np.float64)
    transfer = np.zeros(np.broadcast(n, message, np.asarray(stride)).shape)
    if _all_alone(n):
        return transfer
    latency, exponent = np.zeros_like(transfer), np.ones_like(transfer)
    for level, before, inside in _parts(n, stride, levels):
        joins = inside > before
        over_level = (n - before) / n * message / level.bandwidth_bytes_per_second
        domains = np.maximum(n / before, 1.0)
        distinct = domains * (1.0 - (1.0 - 1.0 / domains) ** copies) / copies
        over_level = over_level * np.where(before > 1.0, distinct, 1.0)
        transfer = np.where(joins, np.maximum(transfer, over_level), transfer)
        latency = latency + _latency(level, before, inside)
        exponent = np.where(joins, level.norm_exponent, exponent)
    return _p_norm(latency, transfer, exponent)


def ring_pass_seconds(
    piece_bytes: ArrayLike, *, rank_count: ArrayLike, stride: ArrayLike, levels: tuple[Level, ...]
) -> Floats:
    """Return seconds until every rank's piece has passed every other rank: n - 1 steps.

    In each step every rank sends a piece to its neighbour over one link, and the widest gap
    between neighbours sets the pace: unlike an all_gather, a ring of single sends has one link
    across nodes.
    """
    n = np.asarray(rank_count, dtype=np.float64)
    piece, levels = np.asarray(piece_bytes, dtype=np.float64), levels_of(levels, "send_recv")
    step = np.zeros(np.broadcast(n, piece, np.asarray(stride)).shape)
    if _all_alone(n):
        return step
    for level, before, inside in _parts(n, stride, levels):
        once = _send_seconds(piece, level)
        step = np.where(inside > before, np.maximum(step, once), step)
    return (n - 1.0) * step


def send_recv_seconds(
    message_bytes: ArrayLike, *, distance: ArrayLike, levels: tuple[Level, ...]
) -> Floats:
    """Return seconds to send a message to the rank `distance` devices away, from a domain's first.

    It passes the first level whose domain reaches that far.
    """
    away = np.asarray(distance, dtype=np.float64)
    domains = np.array([level.device_count for level in levels[:-1]], dtype=np.float64)
    place = (away[..., None] >= domains).sum(axis=-1)
    by_level = send_recv_seconds_by_level(message_bytes, levels)
    shape = np.broadcast(place, by_level[..., 0]).shape
    chosen = np.broadcast_to(place, shape)[..., None]
    return np.take_along_axis(np.broadcast_to(by_level, (*shape, len(levels))), chosen, axis=-1)[
        ..., 0
    ]


def send_recv_seconds_by_level(message_bytes: ArrayLike, levels: tuple[Level, ...]) -> Floats:
    """Return seconds to send a message to a device within one domain of each level.

    Shape [..., levels] for messages of shape [...]; an empty message takes no time.
    """
    message, levels = np.asarray(message_bytes, dtype=np.float64), levels_of(levels, "send_recv")
    return np.stack([_send_seconds(message, level) for level in levels], axis=-1)


def _send_seconds(message: Floats, level: Level) -> Floats:
    """Return seconds of one message over one link of `level`."""
    latency = np.where(message > 0.0, level.latency_seconds / 3.0, 0.0)
    transfer = message / level.bandwidth_bytes_per_second
    return _p_norm(latency, transfer, np.asarray(level.norm_exponent))


def _over_levels(moved: Floats, parts: Sequence[_Part], *, reduces: bool) -> Floats:
    """Return the p-norm time of `moved` bytes a rank over the levels that the group spans."""
    shape = np.broadcast(moved, parts[-1][1]).shape
    bandwidth = np.full(shape, np.inf)
    latency, exponent = np.zeros(shape), np.ones(shape)
    for level, before, inside in parts:
        joins = inside > before
        own = level.bandwidth_bytes_per_second * before
        if reduces:
            ratio = level.all_reduce_bandwidth_ratio
            own = own * np.where(inside >= _SWITCH_RANKS_LEAST, ratio, min(ratio, 1.0))
        bandwidth = np.where(joins, np.minimum(bandwidth, own), bandwidth)
        latency = latency + _latency(level, before, inside)
        exponent = np.where(joins, level.norm_exponent, exponent)
    return _p_norm(latency, moved / bandwidth, exponent)


def _ring_seconds(n: Floats, parts: Sequence[_Part]) -> Floats:
    """Return what a ring over several domains waits for hops, beyond those that the fit has.

        hops = (n - n / i - i + 1) alpha_1 / 4 + sum over outer levels of (n / b - n / i) alpha

    with i and b the group's ranks in a domain of the level and of the one below, so that a ring
    passes from domain to domain n / b - n / i times. On a cluster of A100 nodes a hop takes 15 us,
    and 3.8 us on NVLink, as NCCL reckons with: 14 and 3.4.

    Source: NCCL `src/graph/tuning.cc`, `hwLat` of rings under the simple protocol.
    """
    hops = np.zeros(parts[-1][1].shape)
    for place, (level, before, inside) in enumerate(parts):
        if place == 0:
            within = n - n / inside - (inside - 1.0)
            hops = hops + within * level.latency_seconds / _HOPS_OF_A_FIT
        else:
            hops = hops + (n / before - n / inside) * level.latency_seconds
    return hops


def _all_alone(n: Floats) -> bool:
    """Return whether every group has one rank, which then has nothing to wait for."""
    return not (n > 1.0).any()


def _parts(n: Floats, stride: ArrayLike, levels: tuple[Level, ...]) -> Iterator[_Part]:
    """Yield each level with the group's ranks in one domain below it and in one of its own.

    The outermost level holds every group.
    """
    away = np.asarray(stride, dtype=np.float64)
    span = np.rint(n * away).astype(np.int64)
    before = np.ones(span.shape)
    for level in levels:
        if level is levels[-1]:
            inside = np.broadcast_to(n, span.shape)
        else:
            shared = np.gcd(span, level.device_count)
            inside = np.clip(shared // away, before, n)
        yield level, before, inside
        before = inside


def _latency(level: Level, before: Floats, inside: Floats) -> Floats:
    """Return the latency of joining inside / before parts, growing from its fit at 8."""
    return level.latency_seconds * np.log2(inside / before) / 3.0


def _p_norm(latency: Floats, transfer: Floats, exponent: Floats) -> Floats:
    """Return (latency^e + transfer^e)^(1/e)."""
    norm: Floats = (latency**exponent + transfer**exponent) ** (1.0 / exponent)
    return norm
