"""Summary: the numbers of one group of comparisons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from planner.schema.validation import (
    ErrorSummary,
    FitSummary,
    GroupSummary,
    RankingSummary,
)
from planner.validation.comparison import Comparison, Pair


def group_summary(name: str, comparisons: Sequence[Comparison]) -> GroupSummary:
    """Return what the comparisons of one group come to."""
    return GroupSummary(
        name=name,
        run_count=len(comparisons),
        step=error_summary([c.step for c in comparisons if isinstance(c.step, Pair)]),
        memory=error_summary([c.memory for c in comparisons if isinstance(c.memory, Pair)]),
        fit=fit_summary([c.fit for c in comparisons if isinstance(c.fit, tuple)]),
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


def fit_summary(answers: Sequence[tuple[bool, bool]]) -> FitSummary | None:
    """Return the confusion of (predicted to fit, did fit), `None` without any."""
    if not answers:
        return None
    right = answers.count((True, True))
    wrong = answers.count((False, True))
    caught = answers.count((False, False))
    missed = answers.count((True, False))
    ran_out = caught + missed
    return FitSummary(
        fits_right=right,
        fits_wrong=wrong,
        out_of_memory_right=caught,
        out_of_memory_missed=missed,
        right_ratio=(right + caught) / len(answers),
        missed_ratio=missed / ran_out if ran_out else None,
    )


def ranking_summary(comparisons: Sequence[Comparison]) -> RankingSummary | None:
    """Return the regrets of groups of runs that differ in their layout alone.

    Only `rank_group`s with two runs or more whose times are compared count; `None` without any.
    """
    groups: dict[str, list[Pair]] = defaultdict(list)
    for comparison in comparisons:
        name = comparison.case.run.rank_group
        if name is not None and isinstance(comparison.step, Pair):
            groups[name].append(comparison.step)
    regrets = [_regret_ratio(pairs) for pairs in groups.values() if len(pairs) > 1]
    if not regrets:
        return None
    return RankingSummary(
        group_count=len(regrets),
        mean_regret_ratio=sum(regrets) / len(regrets),
        worst_regret_ratio=max(regrets),
    )


def _regret_ratio(pairs: Sequence[Pair]) -> float:
    chosen = min(pairs, key=lambda pair: pair.predicted)
    return chosen.measured / min(pair.measured for pair in pairs) - 1.0
