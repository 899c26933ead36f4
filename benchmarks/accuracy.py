"""`python -m benchmarks.accuracy FILE`: how right predictions are on a file of measured runs.

Prints what `meshwright validate` says by subset and by family, mixtures by their layout, and how
many pairs of layouts are ranked rightly; with `--write` the tables and the pictures of predicted
against measured go into docs/accuracy.md. The runs are the user's or published ones
(docs/measured-runs.md has the format); they are not part of this repository.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.layouts import mixture_lines, ranking_lines
from benchmarks.page import DOCS, put
from benchmarks.scatter import scattered
from planner.importers.measured_runs import read_measured_runs
from planner.schema.validation import ErrorSummary, GroupSummary, ValidationReport
from planner.units import GIB
from planner.validation.comparison import Comparison, Pair
from planner.validation.report import compared, validation_report

PAGE = DOCS / "accuracy.md"
PICTURES = {"step": DOCS / "accuracy-step.svg", "memory": DOCS / "accuracy-memory.svg"}


def main() -> int:
    """Price the runs, print the tables, and write them where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("file", type=Path, help="measured runs, one JSON object a line")
    parser.add_argument("--write", action="store_true", help="into docs/accuracy.md")
    options = parser.parse_args()
    answers = list(compared(read_measured_runs(options.file)))
    report = validation_report(answers)
    found = [answer for answer in answers if isinstance(answer, Comparison)]
    lines = [*_lines(report), "", *mixture_lines(found), "", *ranking_lines(found)]
    print("\n".join(lines))
    if options.write:
        put("accuracy", lines, page=PAGE)
        for name, unit, one in (("step", "seconds", 1.0), ("memory", "GiB", float(GIB))):
            PICTURES[name].write_text(scattered(_points(found, name, one), unit=unit))
    return 0


def _points(
    found: Iterable[Comparison], name: str, one: float
) -> dict[str, list[tuple[float, float]]]:
    """Return (measured, predicted) by family, in the unit that `one` is of."""
    families: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for answer in found:
        pair = getattr(answer, name)
        if isinstance(pair, Pair):
            place = (pair.measured / one, pair.predicted / one)
            families[answer.case.run.family or "not stated"].append(place)
    return dict(sorted(families.items()))


def _lines(report: ValidationReport) -> Iterator[str]:
    yield (
        f"{report.priced_count} of {report.run_count} runs priced, "
        f"{datetime.now(UTC):%Y-%m-%d}, planner {report.planner_version}."
    )
    yield ""
    yield from _table("by subset", report.subsets)
    for grouping in report.groupings:
        yield ""
        yield from _table(f"by {grouping.by}", grouping.groups)
    yield ""
    yield "| not priced because | runs |"
    yield "|---|---|"
    for tally in report.unpriced:
        yield f"| {tally.description} | {tally.run_count} |"


def _table(title: str, groups: Sequence[GroupSummary]) -> Iterator[str]:
    yield (
        f"| {title} | step: runs | MAPE | median | p90 | bias | in interval | memory: runs | MAPE "
        "| median | fits right | mean regret |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for group in groups:
        step, memory = _errors(group.step), _errors(group.memory)
        fit = "" if group.fit is None else f"{group.fit.right_ratio:.1%}"
        mean = None if group.ranking is None else group.ranking.mean_regret_ratio
        regret = "" if mean is None else f"{mean:.1%}"
        yield "| " + " | ".join([group.name, *step, *memory[:3], fit, regret]) + " |"


def _errors(errors: ErrorSummary | None) -> list[str]:
    if errors is None:
        return [""] * 6
    return [
        str(errors.count),
        f"{errors.mape_ratio:.1%}",
        f"{errors.median_ratio:.1%}",
        f"{errors.p90_ratio:.1%}",
        f"{errors.bias_ratio:+.1%}",
        f"{errors.coverage_ratio:.0%}",
    ]


if __name__ == "__main__":
    sys.exit(main())
