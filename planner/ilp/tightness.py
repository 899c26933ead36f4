"""Tightness: how much of what a rank may hold a load takes at the least.

On a rank that keeps its limits, with w its largest transient, a load of a_k layers has for every
price lambda >= 0 of host bytes
    sum_k a_k min_s (mem_s + lambda host_s) <= capacity - fixed - w + lambda host capacity,
the least over the choices whose transients are w at most: each layer takes no less, and the two
limits hold. The tightness of a load is the left side over the right, at the price at which that is
most, and at the w at which it is least. A load with more than 1 does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.instance import Instance
from planner.ilp.knapsack import Knapsack, hull_slopes, key_of, knapsack_of
from planner.ilp.packing import least_cost

FULL = 1.0 + 1e-9

_EFFORTS = (64, 3000)
_MEMORY_SHARE = 1e-3
_MOST = (1.0 + _MEMORY_SHARE) * (1.0 + 1e-6)  # more than any packing that fits costs
_NEVER = 1e200

Packed = Integers | bool
"""Layers by choice, [columns]; else whether it is known that none fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A rank's choices, whose cost is a share of both memories, and what was packed.

    `prices` are lambda, [prices]; `least` are bytes of a layer with its priced host bytes,
    [kinds, thresholds, prices].
    """

    knapsack: Knapsack
    prices: Floats
    least: Floats
    packed: dict[tuple[tuple[int, ...], float], Packed] = field(default_factory=dict)

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
        least = np.minimum(knapsack.frame.least(priced), _NEVER)
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
        tight: Floats = share.max(axis=2).min(axis=1)
        return tight

    def packing(self, held: Sequence[int], further_bytes: float = 0.0) -> Packed:
        """Return choices for layers `held` [kinds] that keep both limits, if they are found."""
        key = (tuple(held), further_bytes)
        if key not in self.packed:
            self.packed[key] = self._packing(*key)
        return self.packed[key]

    def _packing(self, held: tuple[int, ...], further_bytes: float) -> Packed:
        if self.tightness(np.array([held]), np.array([further_bytes]))[0] > FULL:
            return True
        knapsack = self.knapsack
        if further_bytes:
            knapsack = replace(knapsack, capacity=knapsack.capacity - further_bytes)
        for effort in _EFFORTS:
            found = least_cost(knapsack, held, upper=_MOST, effort=effort, will_do=_MOST)
            if found.counts is not None:
                return found.counts
            if found.lower >= _MOST * (1.0 - 1e-9):
                return True
        return False


def rooms_of(instance: Instance) -> list[Room]:
    """Return the room of every rank; ranks that are equal have one."""
    known: dict[tuple[object, ...], Room] = {}
    found = []
    shares = _shares(instance)
    for rank in range(instance.stage_count):
        knapsack = knapsack_of(instance, rank, shares)
        key = key_of(instance, rank, knapsack)
        if key not in known:
            known[key] = Room.of(knapsack)
        found.append(known[key])
    return found


def _shares(instance: Instance) -> list[Floats]:
    """Return the share of the host's memory that layers take, by kind [stages, choices].

    A little of their share of the device's memory comes with it: among choices that need no host,
    the leanest is the one to be packed. What fits has shares of 1 at the most of each.
    """
    device = np.maximum(instance.capacity_bytes - instance.stage_bytes, 1.0)[:, None]
    host = np.maximum(instance.host_capacity_bytes, 1.0)[:, None]
    return [kind.host / host + _MEMORY_SHARE * kind.memory / device for kind in instance.kinds]
