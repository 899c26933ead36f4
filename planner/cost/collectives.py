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

Where links join devices and no switch, a group has those within it alone: `Level.shares` of the
bandwidth, in between as on a line. A group of ranks with others between counts as an aligned one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from planner.cost.configuration import Booleans, Floats
from planner.network import Level, levels_of
from planner.schema.figures import Collective

if TYPE_CHECKING:
    from planner.cost.setting import Setting


from planner.hardware_profiles import OverlapProfile


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


_HOPS_OF_A_FIT = 4.0  # a fit of small messages on 8 ranks over a hop of large ones
_SWITCH_RANKS_LEAST = 5.0  # switches reduce for more than four ranks; below it is a ring

_Part = tuple[Level, Floats, Floats]
"""A level with the group's ranks in one domain below it and in one of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PNorm:
    """(latency^e + transfer^e)^(1/e) of as many transfers as are asked for, [...] each."""

    latency_power: Floats
    exponent: Floats
    inverse: Floats

    @staticmethod
    def of(latency: Floats, exponent: Floats) -> PNorm:
        """Return the norm beside a latency in seconds."""
        return PNorm(
            latency_power=latency**exponent, exponent=exponent, inverse=np.asarray(1.0 / exponent)
        )

    def seconds(self, transfer: Floats) -> Floats:
        """Return the seconds of transfers that take so many by themselves."""
        norm: Floats = (self.latency_power + transfer**self.exponent) ** self.inverse
        return norm


@dataclass(frozen=True, slots=True, kw_only=True)
class _Path:
    """What limits a collective that every level carries a part of: bytes a second, and latency."""

    bandwidth: Floats
    norm: PNorm

    def seconds(self, moved: Floats) -> Floats:
        """Return the seconds in which every rank moves so many bytes."""
        return self.norm.seconds(moved / self.bandwidth)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spread:
    """What limits an all_to_all: the seconds of a byte on the slowest level, and latency."""

    byte_seconds: Floats
    norm: PNorm


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """`rank_count` ranks, `stride` devices apart from one another, on `levels`; arrays [...].

    How many of them share a domain depends on the group alone, and so do the latency and the
    bandwidth of a collective: they are worked out once for whatever messages it moves.
    """

    rank_count: ArrayLike
    stride: ArrayLike
    levels: tuple[Level, ...]
    _paths: dict[Collective, tuple[_Path, Floats]] = field(default_factory=dict)
    _spreads: dict[int, _Spread] = field(default_factory=dict)
    _steps: list[tuple[Booleans, Level]] = field(default_factory=list)

    def all_reduce(self, message_bytes: ArrayLike) -> Floats:
        """Return seconds until every rank holds the sum: 2 (n - 1) / n of the message is moved."""
        if self._is_alone:
            return self._nothing(message_bytes)
        moved = 2.0 * self._others * np.asarray(message_bytes)
        return self._path("all_reduce")[0].seconds(moved)

    def all_gather(self, message_bytes: ArrayLike) -> Floats:
        """Return seconds until every rank holds the whole message: (n - 1) / n of it is moved.

        A ring, whose hops take their time beside; an all_reduce of many ranks is a tree.
        """
        return self._along_a_ring("all_gather", message_bytes)

    def reduce_scatter(self, message_bytes: ArrayLike) -> Floats:
        """Return seconds until every rank holds its share of the sum.

        As long as an all_gather of the same message, unless a level was measured otherwise.
        """
        return self._along_a_ring("reduce_scatter", message_bytes)

    def all_to_all(self, message_bytes: ArrayLike, *, copies: int = 1) -> Floats:
        """Return seconds until each rank's message is spread evenly over all ranks.

        Of a message made of as many `copies` of every row, those for one domain are sent once.
        """
        if self._is_alone:
            return self._nothing(message_bytes)
        if copies not in self._spreads:
            self._spreads[copies] = self._spread(copies)
        spread = self._spreads[copies]
        return spread.norm.seconds(np.asarray(message_bytes) * spread.byte_seconds)

    def ring_pass(self, piece_bytes: ArrayLike) -> Floats:
        """Return seconds until every rank's piece has passed every other rank: n - 1 steps.

        In each step every rank sends a piece to its neighbour over one link, and the widest gap
        between neighbours sets the pace: unlike an all_gather, a ring of single sends has one link
        across nodes.
        """
        if self._is_alone:
            return self._nothing(piece_bytes)
        if not self._steps:
            own = levels_of(self.levels, "send_recv")
            self._steps.extend((inside > before, level) for level, before, inside in self._on(own))
        piece = np.asarray(piece_bytes, dtype=np.float64)
        step = np.zeros(np.broadcast(self._n, piece, np.asarray(self.stride)).shape)
        for joins, level in self._steps:
            step = np.where(joins, np.maximum(step, send_seconds(piece, level)), step)
        return (self._n - 1.0) * step

    def _along_a_ring(self, kind: Collective, message_bytes: ArrayLike) -> Floats:
        if self._is_alone:
            return self._nothing(message_bytes)
        path, hops = self._path(kind)
        return path.seconds(self._others * np.asarray(message_bytes)) + hops

    @cached_property
    def _n(self) -> Floats:
        return np.asarray(self.rank_count, dtype=np.float64)

    @cached_property
    def _others(self) -> Floats:
        """Return (n - 1) / n, the part of a message that comes from other ranks."""
        return np.asarray((self._n - 1.0) / self._n)

    @cached_property
    def _is_alone(self) -> bool:
        """Return whether every group has one rank, which then has nothing to wait for."""
        return not (self._n > 1.0).any()

    def _nothing(self, message_bytes: ArrayLike) -> Floats:
        return np.zeros(np.broadcast(self._n, message_bytes, self.stride).shape)

    def _path(self, kind: Collective) -> tuple[_Path, Floats]:
        """Return what limits a collective on its levels, and seconds of hops if it is a ring."""
        if kind not in self._paths:
            own = levels_of(self.levels, kind)
            is_ring, parts = kind != "all_reduce", list(self._on(own))
            self._paths[kind] = (
                _path(parts, reduces=not is_ring),
                _ring_seconds(self._n, parts) if is_ring else np.zeros(1),
            )
            if is_ring and own is self.levels:  # an all_gather and a reduce_scatter are alike
                self._paths["all_gather"] = self._paths["reduce_scatter"] = self._paths[kind]
        return self._paths[kind]

    def _spread(self, copies: int) -> _Spread:
        """Return what limits an all_to_all.

        A level carries what leaves the domain below it, (n - inside) / n of the message, over each
        rank's own link; the slowest level sets the pace. Of D domains D (1 - (1 - 1/D)^copies) get
        any of the copies, on average.
        """
        n, parts = self._n, list(self._on(levels_of(self.levels, "all_to_all")))
        shape = parts[-1][1].shape
        slowest, latency, exponent = np.zeros(shape), np.zeros(shape), np.ones(shape)
        for level, before, inside in parts:
            joins = inside > before
            over_level = (n - before) / n / _bandwidth_among(level, inside)
            domains = np.maximum(n / before, 1.0)
            distinct = domains * (1.0 - (1.0 - 1.0 / domains) ** copies) / copies
            over_level = over_level * np.where(before > 1.0, distinct, 1.0)
            slowest = np.where(joins, np.maximum(slowest, over_level), slowest)
            latency = latency + _latency(level, before, inside)
            exponent = np.where(joins, level.norm_exponent, exponent)
        return _Spread(byte_seconds=slowest, norm=PNorm.of(latency, exponent))

    def _on(self, levels: tuple[Level, ...]) -> Iterator[_Part]:
        """Yield each level with the group's ranks in one domain below it and in one of its own.

        The outermost level holds every group.
        """
        away = np.asarray(self.stride, dtype=np.float64)
        span = np.rint(self._n * away).astype(np.int64)
        before = np.ones(span.shape)
        for level in levels:
            if level is levels[-1]:
                inside = np.broadcast_to(self._n, span.shape)
            else:
                shared = np.gcd(span, level.device_count)
                inside = np.minimum(np.maximum(shared // away, before), self._n)
            yield level, before, inside
            before = inside


def send_seconds(message: Floats, level: Level) -> Floats:
    """Return seconds of one message over one link of `level`; an empty one takes no time."""
    latency = np.where(message > 0.0, level.latency_seconds / 3.0, 0.0)
    transfer = message / _bandwidth_among(level, 2.0)
    return PNorm.of(latency, np.asarray(level.norm_exponent)).seconds(transfer)


def _bandwidth_among(level: Level, rank_count: Floats | float) -> Floats:
    """Return the bytes a second of each of so many ranks in one domain of `level`."""
    if not level.shares:
        return np.asarray(level.bandwidth_bytes_per_second)
    counts, shares = zip(*level.shares, strict=True)
    return np.asarray(level.bandwidth_bytes_per_second * np.interp(rank_count, counts, shares))


def _path(parts: Sequence[_Part], *, reduces: bool) -> _Path:
    """Return the least bandwidth of the levels that a group spans, and their latencies together."""
    shape = parts[-1][1].shape
    bandwidth = np.full(shape, np.inf)
    latency, exponent = np.zeros(shape), np.ones(shape)
    for level, before, inside in parts:
        joins = inside > before
        own = _bandwidth_among(level, inside) * before
        if reduces:
            ratio = level.all_reduce_bandwidth_ratio
            own = own * np.where(inside >= _SWITCH_RANKS_LEAST, ratio, min(ratio, 1.0))
        bandwidth = np.where(joins, np.minimum(bandwidth, own), bandwidth)
        latency = latency + _latency(level, before, inside)
        exponent = np.where(joins, level.norm_exponent, exponent)
    return _Path(bandwidth=bandwidth, norm=PNorm.of(latency, exponent))


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


def _latency(level: Level, before: Floats, inside: Floats) -> Floats:
    """Return the latency of joining inside / before parts, growing from its fit at 8."""
    return level.latency_seconds * np.log2(inside / before) / 3.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Groups:
    """The ranks that collectives of a setting run over, each group placed once; arrays as there."""

    setting: Setting

    @cached_property
    def tensor(self) -> Group:
        """Return the tensor-parallel ranks."""
        return self._group(self.setting.tensor, 1.0)

    @cached_property
    def context(self) -> Group:
        """Return the context-parallel ranks."""
        return self._group(self.setting.context, self.setting.tensor)

    @cached_property
    def expert(self) -> Group:
        """Return the expert-parallel ranks."""
        return self._group(self.setting.expert, self.setting.expert_tensor)

    @cached_property
    def split_expert(self) -> Group:
        """Return the ranks that share experts' matrices where each holds tokens of its own."""
        spread = self.setting.sequence_parallel & (self.setting.expert > 1.0)
        split = spread | self.setting.has_own_experts
        return self._group(np.where(split, self.setting.expert_tensor, 1.0), 1.0)

    @cached_property
    def own_expert(self) -> Group:
        """Return the tensor-parallel ranks where each is left with the output of its own tokens."""
        apart = self.setting.has_own_experts & ~self.setting.sequence_parallel
        return self._group(np.where(apart, self.setting.tensor, 1.0), 1.0)

    @cached_property
    def shard(self) -> Group:
        """Return the ranks that dense states are sharded over."""
        return self._group(self.setting.data_shard, self.setting.tensor)

    @cached_property
    def expert_shard(self) -> Group:
        """Return the ranks that states of the same experts are sharded over."""
        return self._group(
            self.setting.expert_shard, self.setting.expert_tensor * self.setting.expert
        )

    @cached_property
    def data(self) -> Group:
        """Return all ranks that have the same dense parameters."""
        return self._group(self.setting.data_shard * self.setting.replicate, self.setting.tensor)

    @cached_property
    def expert_data(self) -> Group:
        """Return all ranks that have the same experts."""
        return self._group(
            self.setting.expert_shard * self.setting.replicate,
            self.setting.expert_tensor * self.setting.expert,
        )

    @cached_property
    def replica(self) -> Group:
        """Return the ranks that hold the same shard."""
        return self._group(self.setting.replicate, self.setting.tensor * self.setting.data_shard)

    def _group(self, rank_count: Floats, stride: Floats | float) -> Group:
        return Group(rank_count=rank_count, stride=stride, levels=self.setting.hardware.levels)


def exposed_seconds(communication: Floats, window: Floats, overlap: OverlapProfile) -> Floats:
    """Return the seconds that `communication` adds to a compute window.

        exposed = max(0, t - h w) + c min(t, h w)

    with t the communication, w the compute window, h the share of it that can hide, and c the
    slowdown of the compute that shares the device while hiding.

    Source: contention as Galvatron measured it, arXiv:2211.13878 section 4.
    """
    hidden = np.minimum(communication, overlap.hidden_ratio * window)
    return communication - hidden + overlap.contention_ratio * hidden
