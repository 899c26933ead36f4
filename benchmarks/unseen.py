"""`python -m benchmarks.unseen FILE...`: how right predictions are on runs not seen before.

Every batch of published runs is measured once, before anything is learnt from it, and what came out
stays in docs/accuracy.md: `--batch 2026-11-25 --write` puts the tables between the marks of that
batch, which the page must hold (`<!-- unseen 2026-11-25: begin -->` and its end). Measuring a batch
again after its runs were learnt from says how well they are known, and nothing of others; without
`--write` it is printed only.

One file is one source. The mean over sources counts each alike, however many runs it has.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.page import DOCS, put
from planner.importers.measured_runs import read_measured_runs
from planner.schema.validation import GroupSummary
from planner.validation.comparison import Comparison
from planner.validation.report import UnpricedRun, compared
from planner.validation.subsets import SUBSETS
from planner.validation.summary import group_summary

PAGE = DOCS / "accuracy.md"
_HEADINGS = (
    "runs",
    "priced",
    "step: runs",
    "MAPE",
    "bias",
    "in interval",
    "memory: runs",
    "MAPE",
    "in interval",
    "out of memory",
    "missed",
    "refused",
    "grids",
    "died",
    "regret",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Price the runs of each source, print the tables, and write them where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unseen", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", help="measured runs, a source a file")
    parser.add_argument("--batch", help="the batch's date")
    parser.add_argument("--write", action="store_true", help="into docs/accuracy.md")
    options = parser.parse_args(arguments)
    if options.write and options.batch is None:
        parser.error("--write needs --batch: the date whose marks the tables go between")
    files = sorted(options.files)
    lines = list(unseen_lines({f.stem: list(compared(read_measured_runs(f))) for f in files}))
    print("\n".join(lines))
    if options.write:
        put(f"unseen {options.batch}", lines, page=PAGE)
    return 0


def unseen_lines(sources: dict[str, list[Comparison | UnpricedRun]]) -> Iterator[str]:
    """Yield a table by source, with what all come to and the mean over sources, and by subset."""
    answers = [answer for found in sources.values() for answer in found]
    yield (
        f"{_priced_count(answers)} of {len(answers)} runs of {len(sources)} sources priced by "
        f"revision {_revision()}."
    )
    yield ""
    yield "| source | " + " | ".join(_HEADINGS) + " |"
    yield "|---" * (len(_HEADINGS) + 1) + "|"
    summaries = {name: _summary(name, found) for name, found in sources.items()}
    for name, found in sources.items():
        yield _row(name, summaries[name], len(found), _priced_count(found))
    yield _row("**all runs**", _summary("all", answers), len(answers), _priced_count(answers))
    yield _mean_row(list(summaries.values()))
    yield ""
    yield "| subset | " + " | ".join(_HEADINGS[2:]) + " |"
    yield "|---" * (len(_HEADINGS) - 1) + "|"
    priced = [answer for answer in answers if isinstance(answer, Comparison)]
    for name, chosen in SUBSETS.items():
        own = [answer for answer in priced if chosen(answer)]
        if own and name != "all":
            yield "| " + " | ".join([name, *_cells(group_summary(name, own))]) + " |"


def _priced_count(answers: Sequence[Comparison | UnpricedRun]) -> int:
    return sum(isinstance(answer, Comparison) for answer in answers)


def _summary(name: str, answers: Sequence[Comparison | UnpricedRun]) -> GroupSummary:
    return group_summary(name, [one for one in answers if isinstance(one, Comparison)])


def _row(name: str, summary: GroupSummary, run_count: int, priced_count: int) -> str:
    cells = [name, str(run_count), str(priced_count), *_cells(summary)]
    return "| " + " | ".join(cells) + " |"


def _mean_row(summaries: Sequence[GroupSummary]) -> str:
    """Return the means over sources of their mean errors and of what their intervals hold."""
    steps = [one.step for one in summaries if one.step is not None]
    memories = [one.memory for one in summaries if one.memory is not None]
    cells = ["**mean over sources**", "", "", str(len(steps))]
    cells += [_mean([one.mape_ratio for one in steps]), ""]
    cells.append(_mean([one.coverage_ratio for one in steps]))
    cells += [str(len(memories)), _mean([one.mape_ratio for one in memories])]
    cells += [_mean([one.coverage_ratio for one in memories]), *[""] * 6]
    return "| " + " | ".join(cells) + " |"


def _mean(ratios: Sequence[float]) -> str:
    return f"{sum(ratios) / len(ratios):.1%}" if ratios else ""


def _cells(summary: GroupSummary) -> list[str]:
    step, memory, fit, ranking = summary.step, summary.memory, summary.fit, summary.ranking
    cells = [""] * 4
    if step is not None:
        cells = [str(step.count), f"{step.mape_ratio:.1%}", f"{step.bias_ratio:+.1%}"]
        cells.append(f"{step.coverage_ratio:.0%}")
    cells += [""] * 3 if memory is None else [
        str(memory.count), f"{memory.mape_ratio:.1%}", f"{memory.coverage_ratio:.0%}"
    ]  # fmt: skip
    ran_out = 0 if fit is None else fit.out_of_memory_right + fit.out_of_memory_missed
    cells.append(str(ran_out or ""))
    cells.append("" if fit is None else _percent(fit.likely_missed_ratio))
    cells.append("" if fit is None else _percent(fit.refused_ratio))
    if ranking is None:
        return [*cells, "", "", ""]
    regret = _percent(ranking.mean_regret_ratio)
    return [*cells, str(ranking.group_count), str(ranking.died_count), regret]


def _percent(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.1%}"


def _revision() -> str:
    """Return the commit that priced, with a + where files differ from it."""
    command = ["git", "describe", "--always", "--dirty=+", "--abbrev=7"]
    done = subprocess.run(command, cwd=DOCS, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
