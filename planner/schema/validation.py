"""Validation report: how far the cost model is from measured runs, and what was not compared."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SkipValidation

from planner.schema.document import Count, Document, Part
from planner.schema.plan import IntervalCause, MemoryBreakdown, StepBreakdown
from planner.schema.strategy import Strategy

Ratio = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[float, Field(ge=0)]


class ErrorSummary(Part):
    """Relative errors of one quantity over some runs; predicted over measured, less 1.

    `mape_ratio` is the mean of their sizes, `median_ratio` and `p90_ratio` quantiles of these, and
    `bias_ratio` the mean with sign (above 0: predicted too much). `coverage_ratio` is the share of
    measurements inside the prediction's p10 to p90: 0.8 where intervals are honest.
    """

    count: Annotated[int, Field(ge=1)]
    mape_ratio: NotNegative
    median_ratio: NotNegative
    p90_ratio: NotNegative
    bias_ratio: float
    coverage_ratio: Ratio


class FitSummary(Part):
    """Runs by whether they were predicted to fit and did.

    `missed_ratio` is the share of runs that ran out of memory and were predicted to fit.
    `likely_missed_ratio` is the share of these that were given a chance of 0.9 or more, and
    `refused_ratio` the share of runs that fitted and were given less.
    """

    fits_right: Count
    fits_wrong: Count
    out_of_memory_right: Count
    out_of_memory_missed: Count
    right_ratio: Ratio
    missed_ratio: Ratio | None
    likely_missed_ratio: Ratio | None = None
    refused_ratio: Ratio | None = None


class RankingSummary(Part):
    """Regret: measured step of the chosen configuration over the best measured, less 1.

    Chosen of a group is the one that is predicted fastest among those that are given a chance of
    fitting of 0.9 or more, or among all where none is. `died_count` chosen ones ran out of memory
    and have no regret; where all did, it is `null`.
    """

    group_count: Annotated[int, Field(ge=1)]
    died_count: Count = 0
    mean_regret_ratio: NotNegative | None
    worst_regret_ratio: NotNegative | None


class GroupSummary(Part):
    """One group of runs; what was not compared there is `null`."""

    name: str
    run_count: Count
    step: ErrorSummary | None = None
    memory: ErrorSummary | None = None
    fit: FitSummary | None = None
    ranking: RankingSummary | None = None


class Grouping(Part):
    """All runs by the values of one key."""

    by: str
    groups: tuple[GroupSummary, ...]


class Compared(Part):
    """One quantity of one run: the prediction with its interval, and the measurement."""

    predicted: NotNegative
    p10: NotNegative
    p90: NotNegative
    measured: NotNegative


class RunComparison(Part):
    """One run's predictions beside its measurements; a run without a price has the reason.

    `interval_causes` say why the step's interval is as wide as it is, `assumptions` what was
    assumed to price the run. The `strategy` may have virtual stages without a layer, as no plan.
    """

    id: str | None
    family: str
    model: str | None
    device: str | None = None
    unpriced: str | None = None
    step_seconds: Compared | None = None
    interval_causes: tuple[IntervalCause, ...] = ()
    peak_bytes: Compared | None = None
    fits_probability: Ratio | None = None
    outcome: str | None = None
    breakdown_seconds: StepBreakdown | None = None
    memory_bytes: MemoryBreakdown | None = None
    strategy: SkipValidation[Strategy | None] = None
    assumptions: tuple[str, ...] = ()


class Tally(Part):
    """How many runs something holds for; `examples` name what in them is to blame."""

    name: str
    description: str
    run_count: Annotated[int, Field(ge=1)]
    families: dict[str, int] = Field(default_factory=dict)
    examples: tuple[str, ...] = ()


class ValidationReport(Document):
    """The whole answer: `run_count` = `priced_count` + the sum over `unpriced`.

    `subsets` overlap; they leave out bulk runs, which have one of their own. `set_aside` counts
    priced runs that are not compared in step time, memory or fit. `illegal` counts priced runs
    whose strategy breaks a rule that plans are held to, by its field. `unread` counts runs by the
    keys that the format does not have.
    """

    run_count: Count
    priced_count: Count
    unpriced: tuple[Tally, ...]
    set_aside: tuple[Tally, ...]
    assumptions: tuple[Tally, ...]
    illegal: tuple[Tally, ...]
    unread: tuple[Tally, ...] = ()
    subsets: tuple[GroupSummary, ...]
    groupings: tuple[Grouping, ...]
    planner_version: str
