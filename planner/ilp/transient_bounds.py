"""Transient bounds: what given layers cost on one rank at the least, by their largest transient.

A knapsack has a bound for each largest transient (`planner.ilp.knapsack`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.knapsack import Knapsack, hull_slopes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduced:
    """The choices under one largest transient, with what each costs beyond the bound.

    `columns` are places in the knapsack, of the kinds that are `held` [kinds]; `kinds` are theirs,
    and `reduced` the least reduced costs c_s + lambda m_s - min at a price lambda of memory, both
    [columns]. `bound` is of every packing, `known` of those with a layer of one of the `needed`
    columns, places in `columns`, which have the transient itself.
    """

    held: Integers
    columns: Integers
    kinds: Integers
    reduced: Floats
    room: float
    price: float
    bound: float
    known: float
    needed: Integers


@dataclass(slots=True, kw_only=True)
class TransientBounds:
    """Bounds by the largest transient, [thresholds], of layers `held` [kinds].

    `prices` are of memory, nan where nobody has asked for `price_of` a place. What is `done` is of
    no more interest.
    """

    own: Knapsack
    held: Integers
    values: Floats
    prices: Floats
    done: Booleans
    price_of: Callable[[int], float] | None = None

    @staticmethod
    def of(knapsack: Knapsack, held: Integers) -> TransientBounds:
        """Return the bounds of layers."""
        values, prices = knapsack.bounds(held)
        return TransientBounds._first(knapsack, held, values, prices)

    @staticmethod
    def known(
        knapsack: Knapsack, held: Integers, values: Floats, price_of: Callable[[int], float]
    ) -> TransientBounds:
        """Return the same from bounds that are known, and what says with which price each is."""
        bounds = TransientBounds._first(knapsack, held, values.copy(), np.full_like(values, np.nan))
        bounds.price_of = price_of
        return bounds

    @staticmethod
    def _first(
        knapsack: Knapsack, held: Integers, values: Floats, prices: Floats
    ) -> TransientBounds:
        return TransientBounds(
            own=knapsack,
            held=held,
            values=values,
            prices=prices,
            done=np.zeros(len(values), dtype=bool),
        )

    def next(self) -> int | None:
        """Return the place of the least finite bound that is not done, None where all are."""
        left = np.where(self.done, np.inf, self.values)
        place = int(left.argmin())
        return place if np.isfinite(left[place]) else None

    def _price(self, place: int) -> float:
        """Return the price of memory that a bound is with."""
        if self.price_of is not None and np.isnan(self.prices[place]):
            self.prices[place] = self.price_of(place)
        return float(self.prices[place])

    def reduced(self, place: int) -> Reduced:
        """Return the choices under the threshold at a place with their reduced costs."""
        knapsack, held = self.own, self.held
        transient = float(knapsack.thresholds[place])
        columns = knapsack.under(transient)
        columns = columns[held[knapsack.kind[columns]] > 0]
        kinds, room = knapsack.kind[columns], knapsack.capacity - transient
        price = self._best_price(place, columns, room)
        cost = knapsack.cost[columns] + price * knapsack.memory[columns]
        least = np.full(len(held), np.inf)
        np.minimum.at(least, kinds, cost)
        used = np.flatnonzero(held)
        return Reduced(
            held=held,
            columns=columns,
            kinds=kinds,
            reduced=cost - least[kinds],
            room=room,
            price=price,
            bound=float(held[used] @ least[used]) - price * room,
            known=float(self.values[place]),
            needed=np.flatnonzero(knapsack.transient[columns] == transient),
        )

    def _best_price(self, place: int, columns: Integers, room: float) -> float:
        """Return the price with the largest bound over some columns: a slope of their hulls."""
        knapsack, held = self.own, self.held
        prices, groups = [self._price(place)], []
        for kind in np.flatnonzero(held).tolist():
            own = columns[knapsack.kind[columns] == kind]
            groups.append((float(held[kind]), own))
            prices.extend(hull_slopes(knapsack.cost[own].tolist(), knapsack.memory[own].tolist()))
        tried = np.array(prices)
        bound = -tried * room
        for number, own in groups:
            priced = knapsack.cost[own][:, None] + tried[None, :] * knapsack.memory[own][:, None]
            bound += number * priced.min(axis=0)
        return float(tried[bound.argmax()])
