"""Peaks: what trials that fitted, or did not, say of the memory that others need.

The logarithm of true over predicted peak is g + e, normal around 0 with the standard deviation s
that `planner.cost.intervals.fits_probability` goes by. Plans of one job on one machine share g, of
variance q s^2; e is a plan's own, of variance (1 - q) s^2. With d = log(D / p) the room that a
prediction p leaves of a device of D bytes, and S = s sqrt(1 - q),

    P(fits | g) = Phi((d - g) / S),   P(out of memory | g) = 1 - P(fits | g),

and the posterior of g is its prior times the likelihoods of all trials. A trial without memory
moves g up, one that fits moves it down, each the more the less it was to be expected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from planner.cost.configuration import Floats

SHARED_RATIO = 0.5
"""q. Of 37 groups of four and more published runs of one source and model, the means of
log(measured / predicted peak) differ by a standard deviation of 0.098, and runs within the median
group by 0.094."""

_REACH = 5.0  # standard deviations of g that are looked at on either side
_NODES = 201
_HALVINGS = 60
_NEAREST = 1e-15  # to 0 and 1 that chances are told apart

Trial = tuple[float, bool]
"""The room of a plan that was tried, and whether it fitted."""


def log_room(chance: float, *, error_ratio: float) -> float:
    """Return d of a plan whose predicted chance of fitting is `chance`: Phi(d / s) = chance."""
    inside = min(max(chance, _NEAREST), 1.0 - _NEAREST)
    return error_ratio * NormalDist().inv_cdf(inside)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """The posterior of g: `weights` of `nodes`, which sum to 1; `own_deviation` is S."""

    nodes: Floats
    weights: Floats
    own_deviation: float

    @staticmethod
    def of(trials: Iterable[Trial], *, error_ratio: float) -> Peaks:
        """Return what trials say, given the deviation s of one prediction."""
        deviations = np.linspace(-_REACH, _REACH, _NODES)
        nodes = deviations * error_ratio * math.sqrt(SHARED_RATIO)
        own = error_ratio * math.sqrt(1.0 - SHARED_RATIO)
        logs = -0.5 * deviations**2
        for room, fitted in trials:
            chances = _chances(room, nodes, own)
            logs = logs + np.log(np.maximum(chances if fitted else 1.0 - chances, 1e-300))
        weights = np.exp(logs - logs.max())
        return Peaks(nodes=nodes, weights=weights / weights.sum(), own_deviation=own)

    def chance(self, room: float) -> float:
        """Return the chance of fitting of a plan that has not been tried."""
        return min(float(self.weights @ _chances(room, self.nodes, self.own_deviation)), 1.0)

    def least_room(self, chance: float) -> float:
        """Return the least d at which a plan has a chance of fitting."""
        low, high = -_REACH, _REACH
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self.chance(middle) >= chance else (middle, high)
        return high


def _chances(room: float, nodes: Floats, deviation: float) -> Floats:
    """Return P(fits | g) at each of `nodes`, [nodes]."""
    distances = (room - nodes) / (deviation * math.sqrt(2.0))
    return np.array([0.5 * (1.0 + math.erf(distance)) for distance in distances])
