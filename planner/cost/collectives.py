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

import numpy as np
from numpy.typing import ArrayLike

from planner.cost.configuration import Floats
from planner.cost.group import Group, send_seconds
from planner.network import Level, levels_of


def all_reduce_seconds(
    message_bytes: ArrayLike, *, rank_count: ArrayLike, stride: ArrayLike, levels: tuple[Level, ...]
) -> Floats:
    """Return `Group.all_reduce` of a message."""
    return Group(rank_count=rank_count, stride=stride, levels=levels).all_reduce(message_bytes)


def all_gather_seconds(
    message_bytes: ArrayLike, *, rank_count: ArrayLike, stride: ArrayLike, levels: tuple[Level, ...]
) -> Floats:
    """Return `Group.all_gather` of a message."""
    return Group(rank_count=rank_count, stride=stride, levels=levels).all_gather(message_bytes)


def reduce_scatter_seconds(
    message_bytes: ArrayLike, *, rank_count: ArrayLike, stride: ArrayLike, levels: tuple[Level, ...]
) -> Floats:
    """Return `Group.reduce_scatter` of a message."""
    return Group(rank_count=rank_count, stride=stride, levels=levels).reduce_scatter(message_bytes)


def all_to_all_seconds(
    message_bytes: ArrayLike,
    *,
    rank_count: ArrayLike,
    stride: ArrayLike,
    levels: tuple[Level, ...],
    copies: int = 1,
) -> Floats:
    """Return `Group.all_to_all` of a message."""
    group = Group(rank_count=rank_count, stride=stride, levels=levels)
    return group.all_to_all(message_bytes, copies=copies)


def ring_pass_seconds(
    piece_bytes: ArrayLike, *, rank_count: ArrayLike, stride: ArrayLike, levels: tuple[Level, ...]
) -> Floats:
    """Return `Group.ring_pass` of a piece."""
    return Group(rank_count=rank_count, stride=stride, levels=levels).ring_pass(piece_bytes)


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
    return np.stack([send_seconds(message, level) for level in levels], axis=-1)
