"""Demo: how often the step of the demo's own training is within the interval that it shows.

    python -m benchmarks.demo [--runs 5] [--busy-runs 5] [--write]

Runs `meshwright demo` over and over, some of the times beside a process that keeps one core busy,
and prints what was predicted and measured in each. The bars: 4 of 5 medians are in the interval,
whose ends are no more than a factor of 1.6 apart. With `--write` the table goes into
docs/regret.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import machine, machine_line
from benchmarks.page import DOCS, put
from planner.schema.plan import Interval, Plan
from planner.schema.run import RunReport
from planner.units import format_seconds

PAGE = DOCS / "regret.md"
WITHIN_BAR, WIDTH_BAR = 0.8, 1.6
_HEADINGS = "| | plan | predicted | 80 % interval | width | measured | ratio | within | after |"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One demo: its plan and report, what it warned of, and the step as calibrated on its run."""

    busy: bool
    plan: Plan
    report: RunReport
    warnings: tuple[str, ...]
    calibrated: Interval | None

    @property
    def interval(self) -> Interval:
        """Return the predicted step."""
        return self.plan.prediction.step_seconds

    @property
    def is_within(self) -> bool:
        """Return whether the median step lies in the interval."""
        return self.interval.p10 <= self.report.median_step_seconds <= self.interval.p90

    @property
    def width(self) -> float:
        """Return the interval's upper end over its lower one."""
        return self.interval.p90 / self.interval.p10


def main() -> int:
    """Run demos and print them; return 1 where a bar is missed."""
    options = _options()
    told: list[Told] = []
    for busy in [False] * options.runs + [True] * options.busy_runs:
        told.append(told_demo(busy=busy))
        print(row(told[-1]), flush=True)
    lines = [*table(told), "", *verdict(told)]
    print("\n".join(lines))
    if options.write:
        put("demo", [f"{machine_line(machine())}.", "", *lines], page=PAGE)
    return 0 if meets_bars(told) else 1


def told_demo(*, busy: bool) -> Told:
    """Run one demo, beside a busy core or not."""
    with tempfile.TemporaryDirectory(prefix="meshwright-demo-") as directory, _core(busy=busy):
        words = [sys.executable, "-m", "planner.cli", "demo", "--json", "--directory", directory]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        story = json.loads(done.stdout)
        learnt = story["calibrated_step_seconds"]
        return Told(
            busy=busy,
            plan=Plan.read(Path(directory) / "plan.json"),
            report=RunReport.model_validate(story["run"]),
            warnings=tuple(story["warnings"]),
            calibrated=None if learnt is None else Interval.model_validate(learnt),
        )


@contextmanager
def _core(*, busy: bool) -> Iterator[None]:
    """Keep one core busy meanwhile, if so."""
    if not busy:
        yield
        return
    code = f"import os\nwhile os.getppid() == {os.getpid()}: pass"
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def table(told: Sequence[Told]) -> Iterator[str]:
    """Yield the demos, a row each."""
    yield _HEADINGS
    yield "|---|---|---|---|---|---|---|---|---|"
    yield from map(row, told)


def row(one: Told) -> str:
    """Return a demo's row."""
    interval, measured = one.interval, one.report.median_step_seconds
    strategy = one.plan.strategy
    degrees = (
        f"tp {strategy.tensor_parallel_degree}, pp {strategy.pipeline_parallel_degree}, "
        f"dp {strategy.shard_degree * strategy.replicate_degree}"
    )
    cells = (
        "beside a busy core" if one.busy else "alone",
        degrees,
        format_seconds(interval.p50),
        f"{format_seconds(interval.p10)} to {format_seconds(interval.p90)}",
        f"{one.width:.2f}",
        format_seconds(measured),
        f"{measured / interval.p50:.2f}",
        "yes" if one.is_within else "no",
        "as before" if one.calibrated is None else format_seconds(one.calibrated.p50),
    )
    return f"| {' | '.join(cells)} |"


def verdict(told: Sequence[Told]) -> Iterator[str]:
    """Yield how often and how closely the demos were right, and what they warned of."""
    within, widest = sum(one.is_within for one in told), max(one.width for one in told)
    yield (
        f"{within} of {len(told)} within the interval (bar {WITHIN_BAR:.0%}), whose width is at "
        f"most {widest:.2f} (bar {WIDTH_BAR})."
    )
    warned = sum(bool(one.warnings) for one in told)
    if warned:
        yield f"{warned} said that the machine was busy."


def meets_bars(told: Sequence[Told]) -> bool:
    """Return whether enough demos were right, closely enough."""
    within = sum(one.is_within for one in told)
    return within >= WITHIN_BAR * len(told) and all(one.width <= WIDTH_BAR for one in told)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--busy-runs", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
