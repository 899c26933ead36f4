"""Feasibility: whether anything fits, and what is missing where nothing does.

On a rank that keeps its limits, with w its largest transient, a load of a_k layers has for every
price lambda >= 0 of host bytes
    sum_k a_k min_s (mem_s + lambda host_s) <= capacity - fixed - w + lambda host capacity,
the least over the choices whose transients are w at most: each layer takes no less, and the two
limits hold. The tightness of a load is the left side over the right, at the price at which that is
most, and at the w at which it is least. A load with more than 1 does not fit.

The loads at which the tightest rank is least tight are packed exactly, with host bytes as the cost,
to learn whether a configuration has any plan, however slow (`fitted`). A load that does not fit is
left out with all that have no fewer layers of any kind, and others are looked for, until all ranks
are packed or no loads are left, which proves that there is no plan: loads of any plan add up to the
chain, and each fits on its rank.

The memory that a configuration lacks is found by giving it more until it fits. Bounds of memory
(`planner.ilp.lagrangian_bound`) take every rank's least transient beside its least
bytes and may be under the limit where nothing fits. Here packings decide, so that what is needed is
always more than what there is, and it is known which of the two memories it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.cut_point_graph import best_loads, cuts_with_loads, least_maximum, rank_moves_of
from planner.ilp.instance import (
    Assignment,
    Evaluation,
    Instance,
    at_cuts,
    evaluate,
    everywhere,
    fits,
    load_of_cuts,
)
from planner.ilp.lagrangian_bound import Windows, fit_chain, levels_of
from planner.ilp.problem import Effort, TooManyError
from planner.ilp.settings import (
    LOAD_SUMS,
    LOADS_BRANCHED,
    NEVER,
    ROUNDING,
    SHORTFALL_TOLERANCE,
    TIE_WEIGHT,
    UNITS_PER_LOOK,
)
from planner.ilp.stage_knapsack import Knapsack, hull_slopes, knapsack_of, least_cost
from planner.ilp.stage_loads import Load, as_loads, held_of, with_pinned

PackedLayers = Integers | bool
"""Layers by choice, [columns]; without any, True if it is proven that none fit, and else False."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A rank's choices, whose cost is a share of both memories, and what was packed.

    `prices` are lambda, [prices]; `least` are bytes of a layer with its priced host bytes,
    [kinds, thresholds, prices].
    """

    knapsack: Knapsack
    prices: Floats
    least: Floats
    packed: dict[tuple[tuple[int, ...], float], PackedLayers] = field(default_factory=dict)

    @staticmethod
    def of(knapsack: Knapsack) -> Room:
        """Return the room of a rank of which nothing is packed.

        Prices are those at which the best choices of a kind change.
        """
        slopes = [0.0]
        for own in knapsack.frame.members:
            slopes += hull_slopes(knapsack.host[own].tolist(), knapsack.memory[own].tolist())
        found = np.unique(np.array(slopes))
        prices = np.concatenate([[0.0], 1.0 / found[found > 0.0]])
        priced = knapsack.memory[:, None] + prices * knapsack.host[:, None]
        least = np.minimum(knapsack.frame.least(priced), NEVER)
        return Room(knapsack=knapsack, prices=prices, least=least)

    def tightness(self, held: Integers, further_bytes: Floats) -> Floats:
        """Return the tightness of loads, `held` [loads, kinds], inf where no choices will do.

        `further_bytes` [loads] are taken on the device beside the layers.
        """
        kinds, thresholds, prices = self.least.shape
        layers = held[:, :kinds].astype(np.float64)
        taken = (layers @ self.least.reshape(kinds, -1)).reshape(len(held), thresholds, prices)
        room = self.knapsack.capacity - self.knapsack.thresholds[:, None]
        room = room + self.prices * self.knapsack.host_capacity
        room = np.broadcast_to(room - further_bytes[:, None, None], taken.shape)
        share = np.where((taken > 0.0) | (room < 0.0), np.inf, 0.0)
        np.divide(taken, room, out=share, where=room > 0.0)
        return np.asarray(share.max(axis=2).min(axis=1))

    def packing(self, held: Sequence[int], further_bytes: float = 0.0) -> PackedLayers:
        """Return choices for layers `held` [kinds] that keep both limits, if they are found."""
        key = (tuple(held), further_bytes)
        if key not in self.packed:
            self.packed[key] = self._packing(*key)
        return self.packed[key]

    def _packing(self, held: tuple[int, ...], further_bytes: float) -> PackedLayers:
        if self.tightness(np.array([held]), np.array([further_bytes]))[0] > 1.0 + ROUNDING:
            return True
        knapsack = self.knapsack
        if further_bytes:
            knapsack = replace(knapsack, capacity=knapsack.capacity - further_bytes)
        most = 1.0 + 2.0 * TIE_WEIGHT  # more than any packing that fits costs
        found = least_cost(knapsack, held, upper=most, will_do=most)
        return found.lower >= most * (1.0 - ROUNDING) if found.counts is None else found.counts


def rooms_of(instance: Instance) -> list[Room]:
    """Return the room of every rank."""
    shares = _shares(instance)
    return [Room.of(knapsack_of(instance, r, shares)) for r in range(instance.stage_count)]


def _shares(instance: Instance) -> list[Floats]:
    """Return the share of the host's memory that layers take, by kind [stages, choices].

    A little of their share of the device's memory comes with it: among choices that need no host,
    the leanest is the one to be packed. What fits has shares of 1 at the most of each.
    """
    device = np.maximum(instance.capacity_bytes - instance.stage_bytes, 1.0)[:, None]
    host = np.maximum(instance.host_capacity_bytes, 1.0)[:, None]
    return [kind.host / host + TIE_WEIGHT * kind.memory / device for kind in instance.kinds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A plan that fits; without one, whether there is none."""

    assignment: Assignment | None = None
    is_proven: bool = False


def fitted(instance: Instance, *, effort: Effort) -> Fitted:
    """Return a plan of the instance, or whether it has none, as far as that is known.

    No more is looked into once the effort is spent.
    """
    windows = levels_of(fit_chain(instance)).windows(0.0)
    if windows is None:
        return Fitted(is_proven=True)
    return _levelled(instance, rooms_of(instance), windows, effort)


def _levelled(
    instance: Instance, rooms: Sequence[Room], windows: Windows, effort: Effort
) -> Fitted:
    """Return a plan of the loads at which the tightest rank is least tight, or that none fits.

    Loads of which it is not known whether they fit are left out as well, and then there is no
    proof.
    """
    held = held_of(instance, windows, most=LOADS_BRANCHED)
    some = _least_loads(instance) if held is None else list(map(as_loads, held))
    tables = _tables(instance, rooms, some)
    if not all(tables):
        return Fitted(is_proven=True)
    if held is None:
        return Fitted()
    loads, levels = [list(own) for own in tables], [np.array(list(own.values())) for own in tables]
    try:
        alike = replace(instance, extras=None, classes=None)
        rank_moves = rank_moves_of(alike, windows, loads, sums_most=LOAD_SUMS)
    except TooManyError:
        return Fitted()
    is_proof = True
    while rank_moves is not None and not effort.is_over:
        effort.spend(UNITS_PER_LOOK * (1 + instance.stage_count))
        if not np.isfinite(least_maximum(rank_moves, levels)):
            rank_moves = None
            break
        places = best_loads(rank_moves, levels, put_together=np.maximum)
        best = [own[place] for own, place in zip(loads, places, strict=True)]
        unpacked = _unpacked(instance, rooms, best)
        if not unpacked:
            cuts, _ = cuts_with_loads(instance, best)
            return Fitted(assignment=None if cuts is None else _assignment(instance, rooms, cuts))
        for rank, is_sure in unpacked.items():
            levels[rank][_no_fewer(loads[rank], best[rank], is_sure=is_sure)] = np.inf
        is_proof = is_proof and all(unpacked.values())
    return Fitted(is_proven=rank_moves is None and is_proof)


def _unpacked(instance: Instance, rooms: Sequence[Room], loads: Sequence[Load]) -> dict[int, bool]:
    """Return the ranks whose load is not packed, and whether it is sure that it does not fit."""
    packed = (
        room.packing(with_pinned(instance, rank, load))
        for rank, (room, load) in enumerate(zip(rooms, loads, strict=True))
    )
    return {rank: found for rank, found in enumerate(packed) if isinstance(found, bool)}


def _least_loads(instance: Instance) -> list[list[Load]]:
    """Return loads of one block for each part of a rank, of which any load of its holds some."""
    prefix = instance.prefix_counts[:, list(instance.free_kinds)]
    earliest, latest = everywhere(instance)
    found: list[set[Load]] = [
        {(0,) * len(instance.free_kinds)} for _ in range(instance.stage_count)
    ]
    for part, rank in enumerate(instance.holders):
        blocks = np.diff(prefix[earliest[part] : latest[part + 1] + 1], axis=0)
        kinds = np.unique(blocks, axis=0)
        held = np.array(list(found[rank]), dtype=np.int64)
        every = (held[:, None] + kinds[None]).reshape(-1, len(instance.free_kinds))
        found[rank] = {tuple(load) for load in every.tolist()}
    return [sorted(own) for own in found]


def _tables(
    instance: Instance, rooms: Sequence[Room], loads: Sequence[Sequence[Load]]
) -> list[dict[Load, float]]:
    """Return the tightness of the loads that may fit, by rank."""
    pinned = np.array([kind.pinned_stage for kind in instance.kinds], dtype=np.float64)
    return [
        _table(instance, room, pinned == rank, own)
        for rank, (room, own) in enumerate(zip(rooms, loads, strict=True))
    ]


def _table(
    instance: Instance, room: Room, is_pinned: Booleans, loads: Sequence[Load]
) -> dict[Load, float]:
    """Return the tightness of a rank's loads that may fit; `is_pinned` [kinds] layers are on it."""
    held = np.repeat(is_pinned.astype(np.int64)[None], len(loads), axis=0)
    free = list(instance.free_kinds)
    held[:, free] = np.array(loads, dtype=np.int64).reshape(len(loads), len(free))
    tight = room.tightness(held, np.zeros(len(loads))).tolist()
    return {
        load: share for load, share in zip(loads, tight, strict=True) if share <= 1.0 + ROUNDING
    }


def _no_fewer(loads: Sequence[Load], left_out: Load, *, is_sure: bool) -> Booleans:
    """Return where a load is, and if it is sure that it does not fit, where none has fewer layers.

    Shape [loads].
    """
    held, most = np.array(loads), np.array(left_out)
    return np.asarray((held >= most if is_sure else held == most).all(axis=1))


def _assignment(
    instance: Instance, rooms: Sequence[Room], cuts: tuple[int, ...]
) -> Assignment | None:
    """Return the plan of packings of what lies between cuts, None where some do not fit."""
    layers = []
    further = (at_cuts(instance, cuts).stage_bytes - instance.stage_bytes).tolist()
    for rank, (room, load) in enumerate(zip(rooms, load_of_cuts(instance, cuts), strict=True)):
        packed = room.packing(with_pinned(instance, rank, tuple(load)), further[rank])
        if isinstance(packed, bool):
            return None
        layers.append(packed)
    starts = np.cumsum([len(kind.choice) for kind in instance.kinds])[:-1]
    counts = tuple(np.split(np.stack(layers), starts, axis=1))
    assignment = Assignment(counts=counts, cuts=cuts)
    return assignment if fits(instance, evaluate(instance, assignment)) else None


def least_host_bytes(instance: Instance, *, effort: Effort) -> float | None:
    """Return the least host bytes of the fullest share with which a plan is found, to a per cent.

    None where none is found with the effort, however much there is.
    """
    most = _most_bytes(instance, "host")
    return _least_bytes(instance, "host_capacity_bytes", "host_bytes", most=most, effort=effort)


def least_device_bytes(instance: Instance, *, effort: Effort) -> float | None:
    """Return the least bytes of a device with which a plan is found, to a per cent.

    Host memory is taken to be boundless. None where no plan is found with the effort.
    """
    host = instance.host_capacity_bytes + _most_bytes(instance, "host")
    roomy = replace(instance, host_capacity_bytes=host)
    most = _most_bytes(instance, "memory") + _most_bytes(instance, "transient")
    return _least_bytes(roomy, "capacity_bytes", "memory_bytes", most=most, effort=effort)


def _least_bytes(
    instance: Instance, limit: str, taken: str, *, most: float, effort: Effort
) -> float | None:
    """Return the least of a limit on the fullest rank with which a plan is found, halving `most`.

    `limit` is of the instance, `taken` what an evaluation has of it.
    """
    own, low, high = getattr(instance, limit), 0.0, math.inf
    middle = most
    device = float(instance.capacity_bytes.max())
    while math.isinf(high) or high - low > SHORTFALL_TOLERANCE * max(high, device):
        found = _evaluated(replace(instance, **{limit: own + middle}), effort)
        if found is None and math.isinf(high):
            return None
        if found is None:
            low = middle
        else:
            high = float((getattr(found, taken) - own).max())
        middle = (low + high) / 2.0
    return float(own.max()) + high


def _evaluated(instance: Instance, effort: Effort) -> Evaluation | None:
    """Return what a plan of the instance takes, None where none is found with the effort."""
    if effort.is_over:
        return None
    assignment = fitted(instance, effort=effort).assignment
    return None if assignment is None else evaluate(instance, assignment)


def _most_bytes(instance: Instance, name: str) -> float:
    """Return bytes, of a host or of a device, that no rank needs more of for its layers."""
    return sum(kind.count * float(getattr(kind, name).max(initial=0.0)) for kind in instance.kinds)
