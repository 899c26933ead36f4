"""A validation report, as a person reads it: errors by group, then what was not compared."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.schema.validation import (
    ErrorSummary,
    FitSummary,
    GroupSummary,
    RankingSummary,
    Tally,
    ValidationReport,
)
from planner.units import counted

_ERRORS = ("runs", "MAPE", "median", "p90", "bias", "in interval")


def validation_view(report: ValidationReport) -> RenderableType:
    """Return tables of step time, memory and choices by group, and the counts of the rest."""
    parts: list[RenderableType] = [
        Text(f"{report.priced_count} of {report.run_count} runs priced"),
    ]
    parts += _tables("subset", report.subsets)
    for grouping in report.groupings:
        parts += _tables(grouping.by, grouping.groups)
    for title, tallies in (
        ("not priced", report.unpriced),
        ("priced, not compared", report.set_aside),
        ("assumed", report.assumptions),
        ("priced, though no plan may be so", report.illegal),
    ):
        if tallies:
            parts += [Text(), _tally_table(title, tallies)]
    parts += [part for line in unread_lines(report.unread) for part in (Text(), Text(line))]
    return Group(*parts)


def unread_lines(unread: Sequence[Tally]) -> list[str]:
    """Return which keys are not read: those that may be another's misspelling, then all others."""
    near = [
        f"{tally.name} of {counted(tally.run_count, 'run')} is not read; use {tally.examples[0]}?"
        for tally in unread
        if tally.examples
    ]
    others = ", ".join(sorted(tally.name for tally in unread if not tally.examples))
    return [*near, f"not read: {others}"] if others else near


def _tables(by: str, groups: Sequence[GroupSummary]) -> list[RenderableType]:
    found: list[RenderableType] = []
    for title, errors in (
        ("step time", {g.name: g.step for g in groups}),
        ("peak memory", {g.name: g.memory for g in groups}),
    ):
        if any(errors.values()):
            found += [Text(), _error_table(title, by, errors)]
    if any(group.fit or group.ranking for group in groups):
        found += [Text(), _choice_table(by, groups)]
    return found


def _error_table(title: str, by: str, errors: dict[str, ErrorSummary | None]) -> Table:
    table = _table(f"{title} by {by}", *_ERRORS)
    for name, summary in errors.items():
        if summary is not None:
            table.add_row(
                name,
                str(summary.count),
                f"{summary.mape_ratio:.1%}",
                f"{summary.median_ratio:.1%}",
                f"{summary.p90_ratio:.1%}",
                f"{summary.bias_ratio:+.1%}",
                f"{summary.coverage_ratio:.0%}",
            )
    return table


def _choice_table(by: str, groups: Sequence[GroupSummary]) -> Table:
    table = _table(
        f"choices by {by}",
        "fit right",
        "of runs",
        "out of memory missed",
        "at a chance of 0.9",
        "refused",
        "regret",
        "worst",
        "died",
        "of grids",
    )
    for group in groups:
        if group.fit or group.ranking:
            table.add_row(group.name, *_fit_cells(group.fit), *_ranking_cells(group.ranking))
    return table


def _fit_cells(fit: FitSummary | None) -> tuple[str, ...]:
    if fit is None:
        return ("",) * 5
    ran_out = fit.out_of_memory_right + fit.out_of_memory_missed
    count = fit.fits_right + fit.fits_wrong + ran_out
    return (
        f"{fit.right_ratio:.1%}",
        str(count),
        f"{fit.out_of_memory_missed} of {ran_out}" if ran_out else "",
        _percent(fit.likely_missed_ratio),
        _percent(fit.refused_ratio),
    )


def _ranking_cells(ranking: RankingSummary | None) -> tuple[str, ...]:
    if ranking is None:
        return ("",) * 4
    return (
        _percent(ranking.mean_regret_ratio),
        _percent(ranking.worst_regret_ratio),
        str(ranking.died_count),
        str(ranking.group_count),
    )


def _percent(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.1%}"


def _tally_table(title: str, tallies: Sequence[Tally]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(title, overflow="fold")
    table.add_column("runs", justify="right")
    table.add_column("for example", overflow="fold")
    for tally in tallies:
        aspect = f"{tally.name.partition(':')[0]}: " if ":" in tally.name else ""
        shown = "; ".join(tally.examples) or ", ".join(tally.families)
        table.add_row(Text(f"{aspect}{tally.description}"), str(tally.run_count), Text(shown))
    return table


def _table(title: str, *headings: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(title)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table
