"""Summary: the numbers of one group of comparisons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from planner.schema.validation import (
    ErrorSummary,
    FitSummary,
    GroupSummary,
    RankingSummary,
)
from planner.validation.comparison import Comparison, Fit, Pair

LIKELY = 0.9  # the chance from which a configuration is said to fit


def group_summary(name: str, comparisons: Sequence[Comparison]) -> GroupSummary:
    """Return what the comparisons of one group come to."""
    return GroupSummary(
        name=name,
        run_count=len(comparisons),
        step=error_summary([c.step for c in comparisons if isinstance(c.step, Pair)]),
        memory=error_summary([c.memory for c in comparisons if isinstance(c.memory, Pair)]),
        fit=fit_summary([c.fit for c in comparisons if isinstance(c.fit, Fit)]),
        ranking=ranking_summary(comparisons),
    )


def error_summary(pairs: Sequence[Pair]) -> ErrorSummary | None:
    """Return mean, quantiles and coverage of the pairs' errors, `None` without any.

    Quantiles are interpolated linearly.
    """
    if not pairs:
        return None
    errors = np.array([pair.error_ratio for pair in pairs])
    sizes = np.abs(errors)
    return ErrorSummary(
        count=len(pairs),
        mape_ratio=float(sizes.mean()),
        median_ratio=float(np.median(sizes)),
        p90_ratio=float(np.quantile(sizes, 0.9)),
        bias_ratio=float(errors.mean()),
        coverage_ratio=sum(pair.covered for pair in pairs) / len(pairs),
    )


def fit_summary(answers: Sequence[Fit]) -> FitSummary | None:
    """Return the confusion of predicted and real fits, `None` without any."""
    if not answers:
        return None
    ran = [answer for answer in answers if answer.fitted]
    ran_out = [answer for answer in answers if not answer.fitted]
    right, caught = (
        sum(answer.predicted for answer in ran),
        sum(not answer.predicted for answer in ran_out),
    )
    missed = len(ran_out) - caught
    return FitSummary(
        fits_right=right,
        fits_wrong=len(ran) - right,
        out_of_memory_right=caught,
        out_of_memory_missed=missed,
        right_ratio=(right + caught) / len(answers),
        missed_ratio=missed / len(ran_out) if ran_out else None,
        likely_missed_ratio=_share(answer.probability >= LIKELY for answer in ran_out),
        refused_ratio=_share(answer.probability < LIKELY for answer in ran),
    )


def _share(answers: Iterable[bool]) -> float | None:
    known = list(answers)
    return sum(known) / len(known) if known else None


def ranking_summary(comparisons: Sequence[Comparison]) -> RankingSummary | None:
    """Return what choices are worth in groups of runs that differ in their layout alone.

    Only `rank_group`s with two runs or more whose times are compared count; `None` without any.
    """
    groups: dict[str, list[Comparison]] = defaultdict(list)
    for comparison in comparisons:
        name = comparison.case.run.rank_group
        if name is not None and (_has_time(comparison) or _ran_out(comparison)):
            groups[name].append(comparison)
    grids = [grid for grid in groups.values() if sum(map(_has_time, grid)) > 1]
    regrets = [regret for grid in grids if (regret := _regret_ratio(grid)) is not None]
    if not grids:
        return None
    return RankingSummary(
        group_count=len(grids),
        died_count=len(grids) - len(regrets),
        mean_regret_ratio=sum(regrets) / len(regrets) if regrets else None,
        worst_regret_ratio=max(regrets, default=None),
    )


def _has_time(comparison: Comparison) -> bool:
    return isinstance(comparison.step, Pair)


def _ran_out(comparison: Comparison) -> bool:
    return isinstance(comparison.fit, Fit) and not comparison.fit.fitted


def _regret_ratio(grid: Sequence[Comparison]) -> float | None:
    """Return what the choice of a grid loses, `None` where it ran out of memory."""
    likely = [one for one in grid if one.prediction.fits_probability >= LIKELY]
    chosen = min(likely or grid, key=lambda one: one.prediction.step_seconds.p50)
    if not isinstance(chosen.step, Pair):
        return None
    best = min(one.step.measured for one in grid if isinstance(one.step, Pair))
    return chosen.step.measured / best - 1.0
