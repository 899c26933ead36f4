"""Limit prices: what a unit of a rank's limits besides the memory's is worth to given layers.

At prices lambda of memory and nu of the limits, layers cost at least

    D(lambda, nu) = sum_k n_k min_s (c_s + lambda m_s + nu t_s) - lambda room - nu limits,

as every packing within the limits pays no more than it is given back. Any prices that are not below
0 give a bound (Lagrangian relaxation, e.g. Fisher 1981); the best are the dual values of the linear
program, max sum_k n_k y_k - lambda room - nu limits with y_k <= c_s + lambda m_s + nu t_s.
"""

from __future__ import annotations

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.knapsack import Knapsack
from planner.ilp.master import Master, is_available

_PRICE_MOST = 100.0  # in shares of the cost for a whole limit: finite where nothing fits

_TOLERANCE = 1e-9


def limit_prices(knapsack: Knapsack, held: Integers, place: int, *, scale: float) -> Floats | None:
    """Return the best prices of the limits besides the memory's under the transient at a place.

    They are [limits], for layers `held` [kinds]; None where none is worth anything. Costs are about
    the `scale`. Where HiGHS is missing, and CBC solves programs, nothing is priced.
    """
    transient = float(knapsack.thresholds[place])
    room = knapsack.capacity - transient
    if not (is_available() and 0.0 < scale < float("inf") and room > 0.0):
        return None
    limits, columns = _limits(knapsack), _columns(knapsack, held, transient)
    every = np.concatenate([[room], knapsack.limits[limits]])
    taken = np.concatenate([knapsack.memory[None, columns], knapsack.taken[limits][:, columns]])
    kinds = np.flatnonzero(held)
    free = np.full(len(kinds), np.inf)
    master = Master(
        np.concatenate([held[kinds].astype(np.float64), -np.ones(len(every))]),
        least=np.concatenate([-free, np.zeros(len(every))]),
        most=np.concatenate([free, np.full(len(every), _PRICE_MOST)]),
    )
    one_hot = knapsack.kind[columns][:, None] == kinds[None, :]
    rows = np.concatenate([one_hot, -(taken / every[:, None]).T], axis=1)
    master.require_all(rows, knapsack.cost[columns] / scale)
    best = master.best()
    if best is None:
        return None
    prices = np.zeros(len(knapsack.limits))
    prices[limits] = np.maximum(best[1][len(kinds) + 1 :], 0.0) * scale / every[1:]
    return prices if prices.any() else None


def is_exceeded(knapsack: Knapsack, held: Integers, place: int, *, price: float) -> bool:
    """Return whether the cheapest choices exceed a limit besides the memory's.

    They are those at a `price` of memory under the transient at a place; of equal ones those that
    take the least.
    """
    limits = _limits(knapsack)
    columns = _columns(knapsack, held, float(knapsack.thresholds[place]))
    priced = knapsack.cost[columns] + price * knapsack.memory[columns]
    total = np.zeros(len(limits))
    for kind in np.flatnonzero(held).tolist():
        own = knapsack.kind[columns] == kind
        least = float(priced[own].min())
        cheapest = columns[own][priced[own] <= least + _TOLERANCE * abs(least)]
        total += held[kind] * knapsack.taken[limits][:, cheapest].min(axis=1)
    return bool((total > knapsack.limits[limits]).any())


def _limits(knapsack: Knapsack) -> Integers:
    return np.flatnonzero(np.isfinite(knapsack.limits) & (knapsack.limits > 0.0))


def _columns(knapsack: Knapsack, held: Integers, transient: float) -> Integers:
    columns = knapsack.under(transient)
    return columns[held[knapsack.kind[columns]] > 0]
