"""Knapsack: the exact least cost of n equal layers on one rank, with what is pinned to it.

    minimise   sum c_s n_s   over whole n_s >= 0 with sum n_s = n, one choice of each pinned layer
    subject to sum m_s n_s + largest transient <= capacity,   sum h_s n_s <= host

For a largest transient w the choices with more are left out and the capacity is less by w. With the
best price lambda of memory, layers cost their reduced cost rc_s = c_s + lambda m_s - min_s' (...)
beyond the bound. The two corners a, b of the hull at that price cost nothing beyond it; every other
layer that a plan below an upper bound has is paid from the gap between that and the bound. All such
sets of other layers are enumerated, and the rest is filled with a and b in closed form.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Floats, Integers

_LABELS_MOST = 60_000
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Choices of one kind of layer on a rank, each [choices]."""

    cost: Floats
    memory: Floats
    transient: Floats
    host: Floats

    def within(self, transient: float) -> Integers:
        """Return the choices whose transient is no larger."""
        return np.flatnonzero(self.transient <= transient)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knapsack:
    """A rank: what it may hold, what is pinned to it, and its limits in bytes."""

    free: Layers
    pinned: tuple[Layers, ...]
    capacity: float
    host: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """The least cost found with its layers, and a lower bound: equal where that is proven.

    `free` [choices] counts layers; `pinned` is one choice each. Without any packing that fits
    below the upper bound, `cost` is inf and there are no layers.
    """

    lower: float
    cost: float
    free: Integers | None = None
    pinned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Labels:
    """Sets of layers other than a and b, [labels]: reduced cost, bytes, layers, and which."""

    reduced: Floats
    memory: Floats
    host: Floats
    count: Integers
    which: Integers  # [labels, columns]


def least_cost(knapsack: Knapsack, count: int, *, upper: float) -> Packing:
    """Return the cheapest packing of `count` free layers if it costs less than `upper`."""
    best = Packing(lower=upper, cost=float("inf"))
    lower = float("inf")
    for transient in _thresholds(knapsack):
        found = _under(knapsack, count, transient, upper=min(upper, best.cost))
        lower = min(lower, found.lower)
        if found.cost < best.cost:
            best = found
    return Packing(lower=min(lower, best.cost), cost=best.cost, free=best.free, pinned=best.pinned)


def _thresholds(knapsack: Knapsack) -> Floats:
    """Return the largest transients that a packing may have, least first."""
    groups = (knapsack.free, *knapsack.pinned)
    every = np.unique(np.concatenate([group.transient for group in groups]))
    least = max(float(group.transient.min()) for group in groups)
    return every[every >= least]


def _under(knapsack: Knapsack, count: int, transient: float, *, upper: float) -> Packing:
    """Return the cheapest packing with no transient above `transient`."""
    room = knapsack.capacity - transient
    free = knapsack.free.within(transient)
    pinned = [group.within(transient) for group in knapsack.pinned]
    price = _best_price(knapsack, free, pinned, count=count, room=room)
    priced = knapsack.free.cost[free] + price * knapsack.free.memory[free]
    least = float(priced.min())
    pins = [
        g.cost[own] + price * g.memory[own] for g, own in zip(knapsack.pinned, pinned, strict=True)
    ]
    bound = count * least + sum(float(pin.min()) for pin in pins) - price * room
    gap = upper - bound
    nothing = Packing(lower=max(min(upper, bound), bound), cost=float("inf"))
    if gap <= _ROUNDING * abs(upper) or not np.isfinite(bound):
        return nothing
    corners = _corners(knapsack.free, free, priced - least, mean_room=room / max(count, 1))
    search = _Search(
        knapsack=knapsack,
        free=free,
        pinned=pinned,
        reduced=priced - least,
        pins=pins,
        corners=corners,
        count=count,
        room=room,
        bound=bound,
    )
    return search.run(upper)


def _best_price(
    knapsack: Knapsack, free: Integers, pinned: list[Integers], *, count: int, room: float
) -> float:
    """Return the lambda with the largest bound: 0 or a slope between two choices of a hull."""
    prices = [0.0, *_slopes(knapsack.free, free)]
    for group, own in zip(knapsack.pinned, pinned, strict=True):
        prices.extend(_slopes(group, own))
    grid = np.array(prices)
    bound = count * _least(knapsack.free, free, grid) - grid * room
    for group, own in zip(knapsack.pinned, pinned, strict=True):
        bound = bound + _least(group, own, grid)
    return float(grid[int(bound.argmax())])


def _least(group: Layers, own: Integers, grid: Floats) -> Floats:
    return np.asarray((group.cost[own] + grid[:, None] * group.memory[own]).min(axis=1))


def _slopes(group: Layers, own: Integers) -> list[float]:
    """Return the slopes of the lower hull of (memory, cost)."""
    cost, memory = group.cost[own], group.memory[own]
    corner = int(np.lexsort((memory, cost))[0])
    slopes: list[float] = []
    while True:
        lighter = np.flatnonzero(memory < memory[corner])
        if not len(lighter):
            return slopes
        slope = (cost[lighter] - cost[corner]) / (memory[corner] - memory[lighter])
        least = slope.min()
        slopes.append(float(least))
        flat = lighter[slope <= least]
        corner = int(flat[memory[flat].argmin()])


def _corners(
    layers: Layers, free: Integers, reduced: Floats, *, mean_room: float
) -> tuple[int, int]:
    """Return the places in `free` of the corners beside the mean room, heavier first."""
    flat = np.flatnonzero(reduced <= _ROUNDING * max(float(np.abs(layers.cost).max()), 1e-300))
    memory = layers.memory[free[flat]]
    heavier, lighter = flat[int(memory.argmax())], flat[int(memory.argmin())]
    above, below = flat[memory > mean_room], flat[memory <= mean_room]
    if len(above) and len(below):
        heavier = above[int(layers.memory[free[above]].argmin())]
        lighter = below[int(layers.memory[free[below]].argmax())]
    return int(heavier), int(lighter)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """The enumeration at one price and one largest transient."""

    knapsack: Knapsack
    free: Integers
    pinned: list[Integers]
    reduced: Floats
    pins: list[Floats]
    corners: tuple[int, int]
    count: int
    room: float
    bound: float

    def run(self, upper: float) -> Packing:
        """Return the cheapest packing below `upper`, after a look at what is nearest the bound."""
        best = Packing(lower=upper, cost=float("inf"))
        for share in (0.05, 0.3, 1.0):
            gap = (min(upper, best.cost) - self.bound) * share
            labels, cut = self._labels(gap * (1.0 + 1e-9))
            found = self._filled(labels)
            if found is not None and found.cost < best.cost:
                best = found
            reached = self.bound + min(gap, cut)
            if best.cost <= reached:
                return Packing(lower=best.cost, cost=best.cost, free=best.free, pinned=best.pinned)
            if cut < gap:
                break
        lower = min(reached, best.cost)
        if best.cost >= upper:
            return Packing(lower=lower, cost=float("inf"))
        return Packing(lower=lower, cost=best.cost, free=best.free, pinned=best.pinned)

    def _labels(self, gap: float) -> tuple[_Labels, float]:
        """Return all sets of layers with a reduced cost within `gap`, or within what is returned.

        Where there are too many, only those within a smaller gap are kept, and it is returned.
        """
        labels = self._pinned_labels(gap)
        others = [s for s in np.argsort(self.reduced, kind="stable") if s not in self.corners]
        for place in others:
            cost = float(self.reduced[place])
            if cost > gap:
                break
            most = self.count if cost <= 0.0 else min(self.count, int(gap / cost))
            labels = self._with(labels, int(place), most, gap)
            if len(labels.reduced) > _LABELS_MOST:
                gap = float(np.partition(labels.reduced, _LABELS_MOST // 4)[_LABELS_MOST // 4])
                labels = _taken(labels, np.flatnonzero(labels.reduced < gap))
        return labels, gap

    def _pinned_labels(self, gap: float) -> _Labels:
        columns = len(self.free) + len(self.pinned)
        labels = _Labels(
            reduced=np.zeros(1),
            memory=np.zeros(1),
            host=np.zeros(1),
            count=np.zeros(1, dtype=np.int64),
            which=np.zeros((1, columns), dtype=np.int64),
        )
        for place, (group, own, pin) in enumerate(
            zip(self.knapsack.pinned, self.pinned, self.pins, strict=True)
        ):
            parts = []
            for s, extra in enumerate((pin - pin.min()).tolist()):
                which = labels.which.copy()
                which[:, len(self.free) + place] = s
                parts.append(
                    _Labels(
                        reduced=labels.reduced + extra,
                        memory=labels.memory + group.memory[own[s]],
                        host=labels.host + group.host[own[s]],
                        count=labels.count,
                        which=which,
                    )
                )
            labels = _kept(parts, gap=gap, most=self.count)
        return labels

    def _with(self, labels: _Labels, place: int, most: int, gap: float) -> _Labels:
        """Return the labels with 0 to `most` layers of one more choice each."""
        layers, s = self.knapsack.free, self.free[place]
        parts = [labels]
        for number in range(1, most + 1):
            which = labels.which.copy()
            which[:, place] = number
            parts.append(
                _Labels(
                    reduced=labels.reduced + number * self.reduced[place],
                    memory=labels.memory + number * layers.memory[s],
                    host=labels.host + number * layers.host[s],
                    count=labels.count + number,
                    which=which,
                )
            )
        return _kept(parts, gap=gap, most=self.count)

    def _filled(self, labels: _Labels) -> Packing | None:
        """Return the cheapest label filled up with the two corners, None where none fits."""
        layers = self.knapsack.free
        a, b = (self.free[corner] for corner in self.corners)
        left = self.count - labels.count
        room = self.room - labels.memory
        saved = float(layers.memory[a] - layers.memory[b])
        lost = float(layers.cost[b] - layers.cost[a])
        short = left * layers.memory[a] - room
        lighter = np.ceil(short / saved - 1e-9) if saved > 0.0 else np.where(short > 0.0, np.inf, 0)
        fits = lighter <= left
        lighter = np.where(fits, np.maximum(lighter, 0.0), 0.0)
        hosted = labels.host + (left - lighter) * layers.host[a] + lighter * layers.host[b]
        more = float(layers.host[b] - layers.host[a])
        if more < 0.0:
            wanted = np.ceil((hosted - self.knapsack.host) / -more - 1e-9)
            lighter = np.where(fits, lighter + np.maximum(wanted, 0.0), lighter)
            hosted = labels.host + (left - lighter) * layers.host[a] + lighter * layers.host[b]
            fits &= lighter <= left
        fits &= hosted <= self.knapsack.host * (1.0 + _ROUNDING)
        if not fits.any():
            return None
        cost = self._base_cost(labels) + left * layers.cost[a] + lighter * lost
        place = int(np.where(fits, cost, np.inf).argmin())
        number = int(lighter[place])
        counts = np.zeros(len(layers.cost), dtype=np.int64)
        counts[self.free] += labels.which[place, : len(self.free)]
        counts[a] += int(left[place]) - number
        counts[b] += number
        return Packing(
            lower=self.bound,
            cost=float(cost[place]),
            free=counts,
            pinned=tuple(
                int(own[labels.which[place, len(self.free) + i]])
                for i, own in enumerate(self.pinned)
            ),
        )

    def _base_cost(self, labels: _Labels) -> Floats:
        """Return the true cost of every label's own layers."""
        cost: Floats = labels.which[:, : len(self.free)] @ self.knapsack.free.cost[self.free]
        for i, (group, own) in enumerate(zip(self.knapsack.pinned, self.pinned, strict=True)):
            cost = cost + group.cost[own[labels.which[:, len(self.free) + i]]]
        return cost


def _kept(parts: list[_Labels], *, gap: float, most: int) -> _Labels:
    """Return the parts as one, without what costs or holds too much."""
    kept = [
        _taken(part, np.flatnonzero((part.reduced <= gap) & (part.count <= most))) for part in parts
    ]
    return _Labels(
        reduced=np.concatenate([part.reduced for part in kept]),
        memory=np.concatenate([part.memory for part in kept]),
        host=np.concatenate([part.host for part in kept]),
        count=np.concatenate([part.count for part in kept]),
        which=np.concatenate([part.which for part in kept]),
    )


def _taken(labels: _Labels, rows: Integers) -> _Labels:
    return _Labels(
        reduced=labels.reduced[rows],
        memory=labels.memory[rows],
        host=labels.host[rows],
        count=labels.count[rows],
        which=labels.which[rows],
    )
