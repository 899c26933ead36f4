"""Packed: what is known of the packings of one load at some weights, used at others.

The least cost of a load is the least of w x over the parts x = (fill, pace, end) that its packings
may have. Where it is at least L_i at weights w_i, it is at least sum_i mu_i L_i at all weights
w >= sum_i mu_i w_i with mu >= 0, as no part is below 0. The bound is the best with three of the
weights known, or with fewer: a linear program in three rows has no better one. Known packings cost
w x at most. Where both meet nothing is left to look for, as between weights at which the same
packing is the cheapest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import combinations

import numpy as np

from planner.cost.configuration import Floats, Integers

_PROOFS_KEPT = 12
_FLAT = 1e-12


@dataclass(frozen=True, slots=True)
class _Bases:
    """Weights in threes: which, [threes, 3], and how to write others as sums of them."""

    threes: Integers
    weights: Floats
    inverse: Floats


@dataclass(slots=True)
class Packed:
    """Different packings of one load, [columns] each, and proven bounds of its cost.

    `weights` are of fill, pace and end, [proofs, 3], `lower` what the cost is at least with them,
    [proofs], and `limits` what the packings were held to keep, [proofs, limits].
    """

    counts: list[Integers] = field(default_factory=list)
    weights: list[Floats] = field(default_factory=list)
    limits: list[Floats] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    _bases: _Bases | None = None

    def add(self, counts: Integers | None, weights: Floats, limits: Floats, lower: float) -> None:
        """Take note of a packing, if there is one, and of a bound; the last few are kept."""
        if counts is not None and not any(np.array_equal(counts, known) for known in self.counts):
            self.counts.append(counts)
        for kept, new in ((self.weights, weights), (self.limits, limits)):
            kept.append(new)
            del kept[:-_PROOFS_KEPT]
        self.lower.append(max(lower, 0.0))
        del self.lower[:-_PROOFS_KEPT]
        self._bases = None

    def bound(self, weights: Floats, limits: Floats) -> float:
        """Return a bound of the cost at some weights [3] of what keeps some limits [limits].

        It is 0 where nothing is known: what was proven under tighter limits is not used. Where no
        packing keeps looser ones it is inf.
        """
        if not self.lower:
            return 0.0
        if self._bases is None:
            self._bases = _bases_of(np.array(self.weights))
        bases = self._bases
        holds = (limits <= np.array(self.limits)).all(axis=1)
        known = np.where(holds, self.lower, 0.0)
        if np.isinf(known).any():
            return float("inf")
        least = np.append(known, np.zeros(3))
        shares = np.maximum(bases.inverse @ weights, 0.0)
        reached = (shares[:, :, None] * bases.weights).sum(axis=1)
        over = (reached - weights > 0.0).any(axis=1)
        values = (shares * least[bases.threes]).sum(axis=1)
        values[over] *= _scaled(reached[over], weights)
        return float(values.max(initial=0.0))


def _bases_of(known: Floats) -> _Bases:
    """Return all threes of weights [proofs, 3] and of what each part weighs by itself."""
    every = np.concatenate([known, np.eye(3)])
    threes = _threes(len(every))
    weights = every[threes]
    size = np.abs(weights).max(axis=2).prod(axis=1)
    is_basis = np.abs(np.linalg.det(weights)) > _FLAT * size
    threes, weights = threes[is_basis], weights[is_basis]
    return _Bases(threes, weights, np.linalg.inv(weights.transpose(0, 2, 1)))


@cache
def _threes(count: int) -> Integers:
    return np.array(list(combinations(range(count), 3)), dtype=np.int64)


def _scaled(reached: Floats, weights: Floats) -> Floats:
    """Return by what sums [sums, 3] are to be multiplied to be no more than the weights, [sums]."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(reached > 0.0, weights / reached, np.inf)
    least: Floats = np.minimum(ratio.min(axis=1, initial=np.inf), 1.0)
    return least
