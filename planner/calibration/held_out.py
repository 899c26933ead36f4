"""Held out: how far predictions are from runs that the scalars were not fitted on.

Every group of runs is left out once; the scalars fitted on the others price it exactly. Groups are
families; within a single family, models; within a single model, runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.calibration.fit import family_weights, fit_of
from planner.calibration.parts import COUNT, Parts, priced_seconds
from planner.calibration.row import Row
from planner.cost.configuration import Floats
from planner.schema.calibration import HeldOutBy

CHANCE_DEVIATIONS = 0.5
"""Standard errors by which the mean error has to fall. Of sets of ten runs that are noise around
the shipped model 15 % are taken with it, 30 % with 0 and 7 % with 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Relative errors |predicted / measured - 1| of runs left out, [rows], by group."""

    by: HeldOutBy
    groups: tuple[str, ...]
    before: Floats
    after: Floats

    @property
    def helps(self) -> bool:
        """Return whether errors fall, by more than half the standard error of their mean fall."""
        gains = self.before - self.after
        chance = float(gains.std(ddof=1)) / math.sqrt(len(gains))
        return float(gains.mean()) > CHANCE_DEVIATIONS * chance


def held_out(rows: Sequence[Row], parts: Parts) -> HeldOut | None:
    """Return the errors of every group left out; `None` for a single run.

    `parts` are those of `rows` near the fit on all of them.
    """
    if len(rows) < 2:
        return None
    by, groups = _groups(rows)
    shipped = np.zeros(COUNT)
    before, after = np.zeros(len(rows)), np.zeros(len(rows))
    for name in dict.fromkeys(groups):
        kept = [place for place, group in enumerate(groups) if group != name]
        weights = family_weights([rows[place].family for place in kept])
        factors = fit_of(parts.some(kept), weights).factors
        for place in set(range(len(rows))).difference(kept):
            before[place] = _error_ratio(rows[place], shipped)
            after[place] = _error_ratio(rows[place], factors)
    return HeldOut(by=by, groups=groups, before=before, after=after)


def _groups(rows: Sequence[Row]) -> tuple[HeldOutBy, tuple[str, ...]]:
    families = tuple(row.family for row in rows)
    if len(set(families)) > 1:
        return "family", families
    models = tuple(row.model for row in rows)
    if len(set(models)) > 1:
        return "model", models
    return "run", tuple(str(place) for place in range(len(rows)))


def _error_ratio(row: Row, factors: Floats) -> float:
    return abs(priced_seconds(row, factors) / row.measured_seconds - 1.0)
