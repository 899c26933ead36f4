"""Report: every pair of device and stack fitted, judged, and put into a profile or left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from planner.calibration.fit import Fit, fitted
from planner.calibration.held_out import HeldOut, held_out
from planner.calibration.parts import NAMES, scalars_of
from planner.calibration.row import Row, Sorting
from planner.cost.intervals import P90_DEVIATIONS
from planner.schema.calibration import (
    CalibrationProfile,
    CalibrationReport,
    FactorInterval,
    FittedPair,
    HeldOutErrors,
    PairVerdict,
    ScalarIntervals,
)
from planner.schema.scalars import Scalars
from planner.version import planner_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a profile says of itself: its name, the day, and the file of runs."""

    name: str
    date: str
    source: str
    source_digest: str


def calibration_report(
    sorting: Sorting,
    origin: Origin,
    *,
    listen: Callable[[str, int, int], None] | None = None,
) -> CalibrationReport:
    """Return the verdict on every pair, and the profile of those that were accepted."""
    verdicts = []
    for done, ((device, stack), rows) in enumerate(sorted(sorting.rows.items())):
        if listen is not None:
            listen(f"{device} {stack}", done, len(sorting.rows))
        verdicts.append(verdict_of(rows))
    accepted = tuple(verdict.pair for verdict in verdicts if verdict.accepted)
    profile = None
    if accepted:
        profile = CalibrationProfile(
            name=origin.name,
            date=origin.date,
            source=origin.source,
            source_digest=origin.source_digest,
            planner_version=planner_version(),
            pairs=accepted,
        )
    return CalibrationReport(
        run_count=sorting.run_count,
        left_out=dict(sorted(sorting.left_out.items())),
        read_as=dict(sorted(sorting.read_as.items())),
        verdicts=tuple(verdicts),
        profile=profile,
    )


def verdict_of(rows: Sequence[Row]) -> PairVerdict:
    """Return the fit on rows of one device and stack, and whether runs left out bear it out."""
    fit, parts = fitted(rows)
    left = held_out(rows, parts)
    device, stack = rows[0].pair
    pair = FittedPair(
        device=device,
        stack=stack,
        run_count=len(rows),
        families=dict(sorted(Counter(row.family for row in rows).items())),
        scalars=_scalars(fit, left),
        intervals=_intervals(fit),
        held_out=None if left is None else _errors(left),
    )
    accepted, reason = _judged(left)
    return PairVerdict(pair=pair, accepted=accepted, reason=reason)


def _scalars(fit: Fit, left: HeldOut | None) -> Scalars:
    ratio = 1.0 if left is None else left.interval_ratio
    return scalars_of(fit.factors).model_copy(update={"step_interval_ratio": ratio})


def _judged(left: HeldOut | None) -> tuple[bool, str]:
    if left is None:
        return False, "a single run that lists fewer than 4 steps leaves none to hold out"
    if left.helps:
        return True, "the error of runs left out falls"
    if left.after.mean() >= left.before.mean():
        return False, "the error of runs left out does not fall"
    return False, "the error of runs left out falls by no more than chance"


def _errors(left: HeldOut) -> HeldOutErrors:
    return HeldOutErrors(
        by=left.by,
        group_count=len(set(left.groups)),
        mean_before_ratio=float(left.before.mean()),
        mean_after_ratio=float(left.after.mean()),
        median_before_ratio=float(np.median(left.before)),
        median_after_ratio=float(np.median(left.after)),
    )


def _intervals(fit: Fit) -> ScalarIntervals:
    width = P90_DEVIATIONS * fit.deviations
    ends = [scalars_of(fit.factors - width), scalars_of(fit.factors + width)]
    intervals = {}
    for name in NAMES:
        low, high = sorted(getattr(end, name) for end in ends)
        intervals[name] = FactorInterval(p10=low, p90=high)
    return ScalarIntervals(**intervals)
