"""`python -m benchmarks.calibration FILE`: what a few runs of a source are worth for its others.

Of every source with enough published runs, three, five and ten are drawn at random, ten times, and
the rest is predicted as they teach: the mean error of the rest as shipped and after so many runs,
what is left where each run has all others to learn from, and what share of the rest lies within the
interval. A source whose stack no other ran on its chip is
as little known as that (`benchmarks.intervals`). With `--unseen FILE...` the same of sources that
no width, chosen on FILE, knows of; pools of one device, stack and source are their rows.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.intervals import as_left_out, sources_of
from planner.calibration.report import trusted
from planner.cost.intervals import P90_DEVIATIONS
from planner.cost.learnt import Learnt, points_of_runs
from planner.schema.job import LearntRun

DRAWN = (3, 5, 10)
_DRAWS, _LEAST = 10, 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Mean errors of runs that were not drawn, as shipped and after each of `DRAWN`.

    The last of `errors` is of each run by all others. `held` is the share of those not drawn within
    the interval, before and after each.
    """

    errors: tuple[float, ...]
    held: tuple[float, ...]


def outcome_of(runs: Sequence[LearntRun]) -> Outcome:
    """Return the mean over draws."""
    none = np.array([_left(runs, [])])
    found = [none.mean(axis=0)]
    for count in DRAWN:
        random = np.random.default_rng(0)
        draws = [random.choice(len(runs), count, replace=False) for _ in range(_DRAWS)]
        found.append(np.mean([_left(runs, sorted(map(int, drawn))) for drawn in draws], axis=0))
    errors, held = np.array(found).T
    others, _ = Learnt.of(trusted(runs)).left_out()
    left = float(np.abs(np.expm1(-others)).mean())
    return Outcome(errors=(*errors, left), held=tuple(held))


def _left(runs: Sequence[LearntRun], drawn: Sequence[int]) -> tuple[float, float]:
    """Return the mean error of the runs that were not drawn, and the share within the interval."""
    rest = [run for place, run in enumerate(runs) if place not in drawn]
    errors = np.array([run.log_error for run in rest])
    shared, own = rest[0].shared_deviation, np.array([run.own_deviation for run in rest])
    variances = np.full(len(rest), shared**2)
    if drawn:
        learnt, points = Learnt.of(trusted([runs[place] for place in drawn])), points_of_runs(rest)
        errors = errors - learnt.log_factors(points, deviation=shared)
        variances = np.diag(learnt.covariance(points, deviation=shared))
    reach = P90_DEVIATIONS * np.sqrt(variances + own**2)
    return float(np.abs(np.expm1(-errors)).mean()), float((np.abs(errors) <= reach).mean())


def pools_of(sources: dict[str, tuple[LearntRun, ...]]) -> Iterator[tuple[str, list[LearntRun]]]:
    """Yield the runs of a source on one device under one stack, where they are enough."""
    for source, runs in sources.items():
        pools: dict[str, list[LearntRun]] = defaultdict(list)
        for run in runs:
            pools[f"{source}, {run.device} {run.stack}"].append(run)
        yield from ((name, own) for name, own in pools.items() if len(own) >= _LEAST)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables as markdown, and the means over pools."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__)
    parser.add_argument("runs", type=Path, help="measured runs, one JSON object a line")
    parser.add_argument("--unseen", type=Path, nargs="*", default=[], help="sources not seen")
    options = parser.parse_args(arguments)
    known = sources_of(options.runs)
    left: dict[str, tuple[LearntRun, ...]] = {}
    for source, runs in known.items():
        others = [own for name, own in known.items() if name != source]
        left[source] = as_left_out(runs, others)
    _print_table(options.runs.stem, left)
    new = {path.stem: sum(sources_of(path).values(), ()) for path in sorted(options.unseen)}
    if new:
        _print_table("not seen", new)
    return 0


def _print_table(title: str, sources: dict[str, tuple[LearntRun, ...]]) -> None:
    after = " | ".join(f"after {count}" for count in DRAWN)
    print(f"| {title} | runs | shipped | {after} | all others | in interval | {after} |")
    print("|---" * (2 * len(DRAWN) + 5) + "|")
    outcomes = []
    for name, runs in pools_of(sources):
        outcomes.append(outcome_of(runs))
        _print_row(name, str(len(runs)), outcomes[-1])
    errors = tuple(np.mean([one.errors for one in outcomes], axis=0))
    held = tuple(np.mean([one.held for one in outcomes], axis=0))
    _print_row(f"mean of {len(outcomes)}", "", Outcome(errors=errors, held=held))


def _print_row(name: str, count: str, outcome: Outcome) -> None:
    errors = " | ".join(f"{error:.1%}" for error in outcome.errors)
    held = " | ".join(f"{share:.0%}" for share in outcome.held)
    print(f"| {name} | {count} | {errors} | {held} |")


if __name__ == "__main__":
    raise SystemExit(main())
