"""Parts: the predicted steps of rows, taken apart into what each scalar scales.

A step is a sum and a maximum of times that each go with one factor, and of latencies that go with
none. Near a point it is therefore linear in the factors:

    t(u) = rest + sum_j part_j exp(e_j (u - u0))

with u the logarithms of the factors on *time* (a rate's factor, inverted), and e_j the factors that
a part goes with: matrix products in 8 bits and attention go with two. The parts are the derivatives
at u0, by differences of exact prices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.calibration.row import Row
from planner.calibration.scaled_hardware import scaled
from planner.cost.configuration import Floats
from planner.schema.job import Precision
from planner.schema.scalars import Scalars

NAMES = (
    "compute_efficiency_ratio",
    "memory_efficiency_ratio",
    "communication_efficiency_ratio",
    "host_overhead_ratio",
    "fp8_efficiency_ratio",
    "attention_efficiency_ratio",
)
COUNT = len(NAMES)
_COMPUTE, _FP8 = NAMES.index("compute_efficiency_ratio"), NAMES.index("fp8_efficiency_ratio")
_ATTENTION = NAMES.index("attention_efficiency_ratio")
_SIGNS = np.array([1.0 if name == "host_overhead_ratio" else -1.0 for name in NAMES])
_EXPONENTS = np.eye(COUNT)
_EXPONENTS[_FP8, _COMPUTE] = _EXPONENTS[_ATTENTION, _COMPUTE] = 1.0
_DIFFERENCE = 0.05


def scalars_of(factors: Floats) -> Scalars:
    """Return the scalars that logarithms of factors on time, [scalars], stand for."""
    values = np.exp(_SIGNS * factors)
    return Scalars(**{name: float(value) for name, value in zip(NAMES, values, strict=True)})


def priced_seconds(row: Row, factors: Floats) -> float:
    """Return the predicted step of a row under factors on its first kind of device."""
    hardware, stack = row.case.hardware, row.case.job.stack
    first, *others = hardware.kinds
    kinds = (scaled(first, stack, scalars_of(factors)), *others)
    return replace(row.case, hardware=replace(hardware, kinds=kinds)).price().step_seconds.p50


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Steps of rows near the point `at` [scalars].

    `rest` and `measured` (seconds) are [rows]; `parts` is [rows, scalars].
    """

    at: Floats
    rest: Floats
    parts: Floats
    measured: Floats

    def some(self, places: Sequence[int]) -> Parts:
        """Return those of the rows at `places`."""
        chosen = list(places)
        return replace(
            self,
            rest=self.rest[chosen],
            parts=self.parts[chosen],
            measured=self.measured[chosen],
        )

    def log_errors(self, factors: Floats) -> tuple[Floats, Floats]:
        """Return log(predicted / measured), [rows], and its derivatives, [rows, scalars]."""
        scaled = self.parts * np.exp(_EXPONENTS @ (factors - self.at))
        seconds = np.maximum(self.rest + scaled.sum(axis=1), 1e-3 * self.measured)
        return np.log(seconds / self.measured), scaled @ _EXPONENTS / seconds[:, None]


def parts_of(rows: Sequence[Row], at: Floats, *, moved: Sequence[int] = range(COUNT)) -> Parts:
    """Return the steps of `rows` near the point `at`, from 5 to 7 prices each.

    With `moved` only what those factors scale is taken out of the rest, at a price each.
    """
    steps = np.array([priced_seconds(row, at) for row in rows])
    slopes = np.array(
        [_slopes(row, at, step, moved) for row, step in zip(rows, steps, strict=True)]
    )
    parts = slopes.copy()
    parts[:, _COMPUTE] -= slopes[:, _FP8] + slopes[:, _ATTENTION]
    return Parts(
        at=at,
        rest=steps - parts.sum(axis=1),
        parts=parts,
        measured=np.array([row.measured_seconds for row in rows]),
    )


def _slopes(row: Row, at: Floats, step: float, moved: Sequence[int]) -> Floats:
    """Return the derivatives of a row's step by each factor of `moved`, [scalars]."""
    slopes = np.zeros(COUNT)
    for place in moved:
        if place == _FP8 and row.case.job.precision is not Precision.FP8:
            continue
        if place == _ATTENTION and not row.case.job.fused_attention:
            continue
        near = at.copy()
        near[place] += _DIFFERENCE
        slopes[place] = (priced_seconds(row, near) - step) / math.expm1(_DIFFERENCE)
    return slopes
