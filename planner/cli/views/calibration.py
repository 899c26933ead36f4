"""A calibration's report, as a person reads it: what was learnt, errors before and after."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.cli.views.validation import unread_lines
from planner.schema.calibration import CalibrationReport, LearntEffect
from planner.units import counted


def calibration_view(report: CalibrationReport) -> RenderableType:
    """Return what was learnt, in words, the errors of runs left out, and the rest."""
    profile = report.profile
    parts: list[RenderableType] = [Text(_step_words(effect)) for effect in profile.effects]
    parts += [Text(_peak_words(effect)) for effect in profile.peak_effects]
    parts += [Text(), Text(_verdict(report))]
    for program, stack in report.read_as.items():
        said = f"{program} is not known: its runs are priced as {stack}, the closest stack"
        parts += [Text(), Text(said)]
    for reason, count in report.peaks_left_out.items():
        parts += [Text(), Text(f"{counted(count, 'run')} left out for {reason}")]
    if report.left_out:
        parts += [Text(), _left_out_table(report.left_out)]
    parts += [part for line in unread_lines(report.unread) for part in (Text(), Text(line))]
    return Group(*parts)


def _step_words(effect: LearntEffect) -> str:
    than = "longer" if effect.factor >= 1.0 else "less"
    return _words(effect, f"steps take {abs(effect.factor - 1.0):.0%} {than}")


def _peak_words(effect: LearntEffect) -> str:
    than = "more" if effect.factor >= 1.0 else "less"
    return _words(effect, f"peaks of memory are {abs(effect.factor - 1.0):.0%} {than}")


def _words(effect: LearntEffect, what: str) -> str:
    """Return one effect as a sentence: the posterior, the prior, and what the runs said of it."""
    runs = "1 run says" if effect.run_count == 1 else f"{effect.run_count} runs say"
    return (
        f"{effect.runs}: {what} than predicted, within"
        f" {effect.left_ratio:.0%}, where {effect.prior_ratio:.0%} was known before;"
        f" {runs} {effect.said_ratio:.0%} of it"
    )


def _verdict(report: CalibrationReport) -> str:
    word = "taken" if report.accepted else "not taken"
    left = report.profile.held_out
    if left is None:
        return f"{word}: {report.reason}"
    errors = f"{left.mean_before_ratio:.1%} before, {left.mean_after_ratio:.1%} after"
    return f"{word}: {report.reason} ({errors}, each run by all others)"


def _left_out_table(left_out: dict[str, int]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("steps not learnt from")
    table.add_column("runs", justify="right")
    for reason, count in left_out.items():
        table.add_row(Text(_spelled(reason)), str(count))
    return table


def _spelled(reason: str) -> str:
    """Return a reason's name in words, and what is to blame as it is."""
    kind, _, rest = reason.partition(": ")
    name, colon, detail = rest.partition(": ")
    words = f"{kind}: {name}" if rest else kind
    return words.replace("_", " ") + colon + detail
