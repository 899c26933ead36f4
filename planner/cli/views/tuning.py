"""A tuning as a person follows it: a line a trial, and the measured certificate."""

from __future__ import annotations

from planner.schema.plan import Interval
from planner.schema.tuning import PeakKind, Tuning, TuningTrial
from planner.tuning.words import certificate_lines
from planner.units import format_bytes, format_seconds


def trial_line(tuning: Tuning, number: int) -> str:
    """Return a trial that has ended: its layout, predicted interval, and what came of it."""
    trial = tuning.trials[number - 1]
    return (
        f"trial {number} of {tuning.budget.runs}: {trial.description}: "
        f"predicted {_interval(trial.predicted)}, {_outcome(trial)}"
    )


def end_lines(tuning: Tuning) -> list[str]:
    """Return the end of a tuning, a line each."""
    if tuning.certificate is None:
        return []
    lines = list(certificate_lines(tuning.certificate, tuning.budget))
    index = tuning.best_index
    if index is not None:
        lines.insert(2, f"      {tuning.trials[index].description}")
    return lines


def _interval(step: Interval) -> str:
    least, most = format_seconds(step.p10), format_seconds(step.p90)
    return f"{format_seconds(step.p50)} ({least} to {most})"


def _outcome(trial: TuningTrial) -> str:
    if trial.outcome == "measured":
        return f"measured {format_seconds(trial.typical_seconds)}{_peak(trial)}"
    said = "out of memory" if trial.outcome == "out_of_memory" else "failed"
    return f"{said}: {trial.reason}; see {trial.log}"


def _peak(trial: TuningTrial) -> str:
    if trial.peak_memory_bytes is None or trial.predicted_peak_bytes is None:
        return ""
    measured, foreseen = map(format_bytes, (trial.peak_memory_bytes, trial.predicted_peak_bytes))
    if trial.peak_memory_kind is PeakKind.RESERVED:
        return f"; {measured} were reserved, {foreseen} predicted for tensors"
    return f"; tensors took {measured}, predicted {foreseen}"
