"""`python -m benchmarks.tuning FILE... --write`: `meshwright tune` replayed over published grids.

A grid is runs of one source that share model, machine, batch and program and differ in layout,
those that ran out of memory included: a table that answers what each layout takes. Grids of fewer
than six layouts, or of which fewer than two ran, are passed over. After 1, 3, 5 and 10 runs, in
the mean over grids: by how much the best step that was measured is longer than the grid's best
(regret), and the share of runs that ran out of memory, of

- random: layouts in any order, the mean of 20;
- first guess: the layout that is predicted to be the fastest of those likely to fit, and no other;
- by prediction: one after another in that order, then the likeliest to fit of the others;
- tune: what `planner.tuning` chooses by what earlier runs taught; it ends where nothing is left
  that is likely to fit and could be faster.

The cost model knows some of these sources: its rates were chosen on their runs. The last table says
what came of each grid.
"""

from __future__ import annotations

import argparse
import datetime as dt
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.page import DOCS, put
from planner.calibration.peaks import peak_trial
from planner.calibration.row import Row
from planner.cost.peaks import peak_deviation
from planner.importers.measured_runs import read_measured_runs
from planner.schema.job import Calibration, Limits
from planner.schema.measured_run import MeasuredRun, ProgramColumns
from planner.tuning.choice import Measured, Prospect, ranked
from planner.tuning.knowledge import degrees_of, learnt_of, prospect_of
from planner.validation.case import Case, case_of
from planner.validation.measurement import BULK_TIER, measured_fit, measured_seconds
from planner.validation.reasons import SetAside, Unpriced

PAGE = DOCS / "tuning.md"
AFTER = (1, 3, 5, 10)
LAYOUTS_LEAST, RAN_LEAST = 6, 2
SEEDS = 20
LIKELY = Limits().fits_probability or 0.0
REGRET_MOST, WASTED_MOST, JUDGED_AFTER = 0.01, 0.1, 5

_SHARED = (
    "family", "model", "task", "gpu", "num_gpus", "gpus_per_node", "seq_len", "precision",
    "framework", "optimizer", "compile", *ProgramColumns.model_fields,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One layout of a grid: its step, `None` where it ran out of memory."""

    case: Case
    seconds: float | None

    def prospect(self, calibration: Calibration | None) -> Prospect:
        """Return what is predicted of it after `calibration`."""
        job = self.case.job.model_copy(update={"calibration": calibration})
        return prospect_of(self.case.strategy, replace(self.case, job=job).price())


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Layouts that answer for one job, from one source."""

    name: str
    cells: tuple[Cell, ...]

    def timed(self, places: Iterable[int]) -> tuple[Row, ...]:
        """Return those of the layouts at `places` that ran, as they are learnt from."""
        cells = (self.cells[place] for place in places)
        return tuple(
            Row(case=cell.case, measured_seconds=cell.seconds)
            for cell in cells
            if cell.seconds is not None
        )

    @property
    def best_seconds(self) -> float:
        """Return the least step of any layout."""
        return min(cell.seconds for cell in self.cells if cell.seconds is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an order comes to: its regret, `None` where nothing ran, and runs without memory."""

    regret_ratio: float | None
    wasted_ratio: float


Order = Sequence[int]


def grids(runs: Iterable[MeasuredRun]) -> Iterator[Grid]:
    """Yield the grids among runs."""
    found: dict[tuple[object, ...], dict[str, list[Cell]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        cell = None if run.tier == BULK_TIER else _cell(run)
        if cell is not None:
            said = cell.case.run  # with what notes and conventions of its program say
            key = *(getattr(said, name) for name in _SHARED), cell.case.job.global_batch_size
            found[key][cell.case.strategy.to_json()].append(cell)
    for layouts in found.values():
        cells = tuple(_of_one_layout(each) for each in layouts.values())
        ran = sum(cell.seconds is not None for cell in cells)
        if len(cells) >= LAYOUTS_LEAST and ran >= RAN_LEAST:
            yield Grid(name=_name(cells[0].case), cells=cells)


def _cell(run: MeasuredRun) -> Cell | None:
    """Return a run that was timed, or that ran out of memory."""
    try:
        case = case_of(run)
    except Unpriced:
        return None
    seconds = measured_seconds(case)
    if not isinstance(seconds, SetAside):
        return Cell(case=case, seconds=seconds)
    return Cell(case=case, seconds=None) if measured_fit(run) is False else None


def _of_one_layout(cells: Sequence[Cell]) -> Cell:
    """Return runs of one layout as one: the median of those that were timed."""
    known = [cell.seconds for cell in cells if cell.seconds is not None]
    return replace(cells[0], seconds=statistics.median(known) if known else None)


def _name(case: Case) -> str:
    run = case.run
    kernels = " ".join(filter(None, (run.attention_kernel, run.norm_kernel)))
    program = f" ({kernels})" if kernels else ""
    return (
        f"{run.family_name}: {case.graph.name} on {case.hardware.device_count} {run.gpu}, "
        f"{case.job.global_batch_size} x {case.job.sequence_length}{program}"
    )


def outcome(grid: Grid, order: Order, *, run_count: int) -> Outcome:
    """Return what the first `run_count` layouts of an order come to, all where it is shorter."""
    tried = [grid.cells[place].seconds for place in order[:run_count]]
    measured = [seconds for seconds in tried if seconds is not None]
    return Outcome(
        regret_ratio=min(measured) / grid.best_seconds - 1.0 if measured else None,
        wasted_ratio=1.0 - len(measured) / len(tried),
    )


def at_random(grid: Grid, seed: int) -> Order:
    """Return all layouts in an order that `seed` draws."""
    places = list(range(len(grid.cells)))
    random.Random(seed).shuffle(places)  # noqa: S311 - a benchmark
    return places


def by_prediction(grid: Grid) -> Order:
    """Return layouts that are likely to fit by predicted steps, then others by their chance."""
    prospects = [cell.prospect(None) for cell in grid.cells]
    first = ranked(prospects, measured=(), likely=LIKELY)
    rest = [place for place in range(len(prospects)) if place not in first]
    return [*first, *sorted(rest, key=lambda place: -prospects[place].fits_probability)]


def first_guess(grid: Grid) -> Order:
    """Return the layout that the planner would choose."""
    return by_prediction(grid)[:1]


def tuned(grid: Grid) -> Order:
    """Return the layouts that a tuning tries, at most ten."""
    order: list[int] = []
    while len(order) < max(AFTER):
        place = _next(grid, order)
        if place is None:
            break
        order.append(place)
    return order


def _next(grid: Grid, tried: Order) -> int | None:
    """Return what the product chooses next of the layouts that are left, `None` at the end."""
    cells = [grid.cells[place] for place in tried]
    peaked = [peak_trial(cell.case, fitted=cell.seconds is not None) for cell in cells]
    left = [place for place in range(len(grid.cells)) if place not in tried]
    job = grid.cells[0].case.job
    wanted = job.model_copy(update={"limits": Limits(fits_probability=LIKELY)})
    case = grid.cells[0].case
    error = peak_deviation(case.workload, case.hardware.kinds[0].profile, wanted)
    calibration = learnt_of(wanted, timed=grid.timed(tried), peaked=peaked, error_ratio=error)
    prospects = [grid.cells[place].prospect(calibration) for place in left]
    measured = [
        Measured(degrees=degrees_of(cell.case.strategy), step_seconds=cell.seconds)
        for cell in cells
        if cell.seconds is not None
    ]
    order = ranked(prospects, measured=measured, likely=LIKELY)
    return left[order[0]] if order else None


Orders = dict[str, list[list[Order]]]
"""By name: for each grid one order, or several whose outcomes are averaged."""


def orders_of(found: Sequence[Grid]) -> Orders:
    """Return the orders of every way to choose."""
    ways: dict[str, Callable[[Grid], list[Order]]] = {
        "random": lambda grid: [at_random(grid, seed) for seed in range(SEEDS)],
        "first guess": lambda grid: [first_guess(grid)],
        "by prediction": lambda grid: [by_prediction(grid)],
        "tune": lambda grid: [tuned(grid)],
    }
    return {name: [way(grid) for grid in found] for name, way in ways.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """Means over grids; `nothing_ratio` is the share of orders of which nothing ran so far."""

    regret_ratio: float
    wasted_ratio: float
    nothing_ratio: float


def mean_of(found: Sequence[Grid], orders: Sequence[list[Order]], *, run_count: int) -> Mean:
    """Return what a way to choose comes to after so many runs, each grid alike."""
    regrets, wasted, nothing = [], [], []
    for grid, some in zip(found, orders, strict=True):
        each = [outcome(grid, order, run_count=run_count) for order in some]
        known = [one.regret_ratio for one in each if one.regret_ratio is not None]
        regrets += [statistics.mean(known)] if known else []
        wasted.append(statistics.mean(one.wasted_ratio for one in each))
        nothing.append(1.0 - len(known) / len(each))
    return Mean(
        regret_ratio=statistics.mean(regrets),
        wasted_ratio=statistics.mean(wasted),
        nothing_ratio=statistics.mean(nothing),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables, and write them where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", help="measured runs")
    parser.add_argument("--write", action="store_true", help="into docs/tuning.md")
    options = parser.parse_args(arguments)
    found = [grid for path in options.files for grid in grids(read_measured_runs(path))]
    orders = orders_of(found)
    lines = list(_lines(found, orders))
    print("\n".join(lines))
    if options.write:
        put("replay", lines, page=PAGE)
    return 0


def _lines(found: Sequence[Grid], orders: Orders) -> Iterator[str]:
    cells = [cell for grid in found for cell in grid.cells]
    lost = sum(cell.seconds is None for cell in cells)
    yield (
        f"{len(found)} grids of {len(cells)} layouts, {lost} of which ran out of memory; "
        f"{dt.datetime.now(tz=dt.UTC).date().isoformat()}."
    )
    yield ""
    yield from result_lines(found, orders)


def result_lines(found: Sequence[Grid], orders: Orders) -> Iterator[str]:
    """Yield the means of every way to choose, the verdict, and what came of each grid."""
    heads = (f"regret after {count} | wasted | nothing ran" for count in AFTER)
    yield f"| | {' | '.join(heads)} |"
    yield "|---" * (3 * len(AFTER) + 1) + "|"
    for name, some in orders.items():
        means = [mean_of(found, some, run_count=count) for count in AFTER]
        cells_of = (
            f"{one.regret_ratio:.1%} | {one.wasted_ratio:.0%} | {one.nothing_ratio:.0%}"
            for one in means
        )
        yield f"| {name} | {' | '.join(cells_of)} |"
    yield ""
    yield _verdict(mean_of(found, orders["tune"], run_count=JUDGED_AFTER))
    yield ""
    yield from _by_grid(found, orders["tune"])


def _verdict(mean: Mean) -> str:
    reached = mean.regret_ratio <= REGRET_MOST and mean.wasted_ratio <= WASTED_MOST
    return (
        f"Aimed at after {JUDGED_AFTER} runs: a mean regret of at most {REGRET_MOST:.0%}, and at "
        f"most {WASTED_MOST:.0%} of runs without memory. "
        f"{'Reached' if reached else 'Missed'}: {mean.regret_ratio:.2%} and "
        f"{mean.wasted_ratio:.1%}."
    )


def _by_grid(found: Sequence[Grid], orders: Sequence[list[Order]]) -> Iterator[str]:
    heads = (f"after {count}" for count in AFTER)
    yield f"| grid | layouts | out of memory | tried | wasted | {' | '.join(heads)} |"
    yield "|---" * (len(AFTER) + 5) + "|"
    for grid, (order,) in zip(found, orders, strict=True):
        each = [outcome(grid, order, run_count=count) for count in AFTER]
        regrets = ("" if one.regret_ratio is None else f"{one.regret_ratio:.1%}" for one in each)
        lost = sum(cell.seconds is None for cell in grid.cells)
        yield (
            f"| {grid.name} | {len(grid.cells)} | {lost} | {len(order)} | "
            f"{each[-1].wasted_ratio:.0%} | {' | '.join(regrets)} |"
        )


if __name__ == "__main__":
    sys.exit(main())
