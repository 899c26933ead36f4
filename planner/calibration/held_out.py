"""Held out: how far predictions are from runs that the scalars were not fitted on.

Every group of runs is left out once; the scalars fitted on the others price it exactly. Groups are
families; within a single family, models; within a single model, runs. Of a single run that lists
its steps, the later half of them is left out of the fit on the earlier half.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.calibration.fit import family_weights, fit_of, prior_of
from planner.calibration.parts import COUNT, Parts, priced_interval, priced_seconds
from planner.calibration.row import Row
from planner.cost.configuration import Floats
from planner.schema.calibration import HeldOutBy

CHANCE_DEVIATIONS = 0.5
"""Standard errors by which the mean error has to fall. Of sets of ten runs that are noise around
the shipped model 15 % are taken with it, 30 % with 0 and 7 % with 1."""

COVERAGE = 0.8
"""Share of runs that an interval is to hold."""

LEAST_STEPS = 2
"""Of each half of a single run."""

INTERVAL_RATIO_LEAST, INTERVAL_RATIO_MOST = 0.25, 4.0
"""Whatever the runs left out: a handful that agree are no proof of certainty, nor of none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Relative errors |predicted / measured - 1| of runs left out, [rows], by group.

    `widths` are logarithms of measured over predicted after the fit, over those of the shipped
    interval's end, without their sign: at most 1 within the interval.
    """

    by: HeldOutBy
    groups: tuple[str, ...]
    before: Floats
    after: Floats
    widths: Floats

    @property
    def helps(self) -> bool:
        """Return whether errors fall, by more than half the standard error of their mean fall."""
        gains = self.before - self.after
        chance = float(gains.std(ddof=1)) / math.sqrt(len(gains))
        return float(gains.mean()) > CHANCE_DEVIATIONS * chance

    @property
    def interval_ratio(self) -> float:
        """Return the factor on intervals that holds 80 % of such runs; 1 where they are too few.

        Of n runs the k-th nearest, k = 0.8 (n + 1) rounded up, is farther off than the next run in
        as many cases. Source: Vovk et al. 2005, doi:10.1007/b106715 (conformal prediction).
        """
        if self.by == "step":  # of one run, which says nothing of others
            return 1.0
        place = math.ceil(COVERAGE * (len(self.widths) + 1))
        if place > len(self.widths):
            return 1.0
        ratio = float(np.sort(self.widths)[place - 1])
        return min(max(ratio, INTERVAL_RATIO_LEAST), INTERVAL_RATIO_MOST)


def held_out(rows: Sequence[Row], parts: Parts) -> HeldOut | None:
    """Return the errors of every group left out; `None` for a single run of fewer than 4 steps.

    `parts` are those of `rows` near the fit on all of them.
    """
    if len(rows) < 2:
        return _later_steps(rows[0], parts)
    by, groups = groups_of(rows)
    shipped = np.zeros(COUNT)
    before, after, widths = (np.zeros(len(rows)) for _ in range(3))
    for name in dict.fromkeys(groups):
        kept = [place for place, group in enumerate(groups) if group != name]
        weights = family_weights([rows[place].family for place in kept])
        prior = prior_of([rows[place] for place in kept])
        factors = fit_of(parts.some(kept), weights, prior=prior).factors
        for place in set(range(len(rows))).difference(kept):
            interval = priced_interval(rows[place], shipped)
            seconds = priced_seconds(rows[place], factors)
            measured = rows[place].measured_seconds
            before[place] = abs(interval.p50 / measured - 1.0)
            after[place] = abs(seconds / measured - 1.0)
            half = math.log(interval.p90 / interval.p50)
            widths[place] = abs(math.log(seconds / measured)) / half
    return HeldOut(by=by, groups=groups, before=before, after=after, widths=widths)


def _later_steps(row: Row, parts: Parts) -> HeldOut | None:
    """Return the errors of a run's later steps under the scalars fitted on its earlier ones."""
    steps = np.array(row.case.run.steps_s)
    half = len(steps) // 2
    if half < LEAST_STEPS:
        return None
    earlier = replace(parts, measured=np.array([np.median(steps[:half])]))
    factors = fit_of(earlier, np.ones(1), prior=prior_of([row])).factors
    interval, later = priced_interval(row, np.zeros(COUNT)), steps[half:]
    seconds = priced_seconds(row, factors)
    return HeldOut(
        by="step",
        groups=tuple(str(place) for place in range(half, len(steps))),
        before=np.abs(interval.p50 / later - 1.0),
        after=np.abs(seconds / later - 1.0),
        widths=np.abs(np.log(seconds / later)) / math.log(interval.p90 / interval.p50),
    )


def groups_of(rows: Sequence[Row]) -> tuple[HeldOutBy, tuple[str, ...]]:
    """Return what runs are left out by, and the group of each."""
    families = tuple(row.family for row in rows)
    if len(set(families)) > 1:
        return "family", families
    models = tuple(row.model for row in rows)
    if len(set(models)) > 1:
        return "model", models
    return "run", tuple(str(place) for place in range(len(rows)))
