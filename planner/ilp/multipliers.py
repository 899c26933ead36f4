"""Multipliers: what prices on a program's rows say of every solution.

With a price pi on each row (>= 0 on a row that asks for at least, <= 0 for at most), any solution
has objective >= sum pi b + sum_j d_j x_j, where d = c - A' pi: weak duality. The prices come from a
solver's relaxation, but the numbers are recomputed here, so that no tolerance of the solver is in
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Floats
from planner.ilp.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Multipliers:
    """objective >= `bound` + sum of `reduced` x over any solution, every reduced cost >= 0.

    `reduced` is [columns], `prices` [rows].
    """

    bound: float
    reduced: Floats
    prices: Floats


def multipliers(program: Program, prices: Sequence[float], *, ceiling: float) -> Multipliers:
    """Return what `prices` [rows] prove. No column without an upper bound exceeds `ceiling`.

    Prices of the wrong sign count as 0. Negative reduced costs are paid in the bound.
    """
    reduced = np.zeros(len(program.variables))
    for column, value in program.objective:
        reduced[column] += value
    signed = np.array(prices, dtype=np.float64)
    bound = 0.0
    for place, row in enumerate(program.rows):
        if row.sense == ">=":
            signed[place] = max(signed[place], 0.0)
        elif row.sense == "<=":
            signed[place] = min(signed[place], 0.0)
        price = signed[place]
        if price == 0.0:
            continue
        bound += price * row.bound
        for column, value in row.terms:
            reduced[column] -= price * value
    upper = np.array(
        [ceiling if one.upper is None else one.upper for one in program.variables], dtype=float
    )
    bound += float((np.minimum(reduced, 0.0) * upper).sum())
    return Multipliers(bound=bound, reduced=np.maximum(reduced, 0.0), prices=signed)
