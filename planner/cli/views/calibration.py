"""A calibration's report, as a person reads it: scalars, errors before and after, verdicts."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.schema.calibration import CalibrationReport, FactorInterval, PairVerdict
from planner.schema.scalars import Scalars

_TITLES = {
    "compute_efficiency_ratio": "compute",
    "memory_efficiency_ratio": "memory",
    "communication_efficiency_ratio": "communication",
    "host_overhead_ratio": "host time",
    "fp8_efficiency_ratio": "fp8",
    "attention_efficiency_ratio": "attention",
}


def calibration_view(report: CalibrationReport) -> RenderableType:
    """Return the scalars with their intervals, the errors of runs left out, and the rest."""
    parts: list[RenderableType] = [
        _scalars_table(report.verdicts),
        Text(),
        _errors_table(report.verdicts),
    ]
    for program, stack in report.read_as.items():
        said = f"{program} is not known: its runs are priced as {stack}, the closest stack"
        parts += [Text(), Text(said)]
    if report.left_out:
        parts += [Text(), _left_out_table(report.left_out)]
    return Group(*parts)


def _scalars_table(verdicts: tuple[PairVerdict, ...]) -> Table:
    """Return each scalar over its shipped value, with its 80 % interval."""
    table = _table("scalars", *_TITLES.values())
    for verdict in verdicts:
        scalars, intervals = verdict.pair.scalars, verdict.pair.intervals
        cells = [_cell(scalars, getattr(intervals, name), name) for name in _TITLES]
        table.add_row(_name(verdict), *cells)
    return table


def _cell(scalars: Scalars, interval: FactorInterval, name: str) -> str:
    return f"{getattr(scalars, name):.2f} ({interval.p10:.2f}-{interval.p90:.2f})"


def _errors_table(verdicts: tuple[PairVerdict, ...]) -> Table:
    table = _table("runs held out", "runs", "groups", "before", "after", "verdict")
    for verdict in verdicts:
        left = verdict.pair.held_out
        cells = ("", "", "")
        if left is not None:
            cells = (
                f"{left.group_count} by {left.by}",
                f"{left.mean_before_ratio:.1%}",
                f"{left.mean_after_ratio:.1%}",
            )
        word = "taken" if verdict.accepted else "not taken"
        said = Text(f"{word}: {verdict.reason}")
        table.add_row(_name(verdict), str(verdict.pair.run_count), *cells, said)
    return table


def _left_out_table(left_out: dict[str, int]) -> Table:
    table = _table("not fitted", "runs")
    for reason, count in left_out.items():
        table.add_row(Text(reason.replace("_", " ")), str(count))
    return table


def _name(verdict: PairVerdict) -> str:
    return f"{verdict.pair.device} {verdict.pair.stack.value}"


def _table(title: str, *headings: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(title)
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "verdict" else "right")
    return table
