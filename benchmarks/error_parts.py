"""`python -m benchmarks.error_parts FILE...`: what errors are made of, and what more runs leave.

With y the logarithms of predicted over measured of a source's runs, the mean of y^2 is that of its
bias, mean(y)^2, and of what its runs differ by among themselves, var(y): one number of its own
would take the bias away. Each run is then predicted by all other runs of its source:

- by one factor, the mean of the others;
- as `meshwright calibrate` learns from them, by how alike they are (`planner.cost.learnt`);
- by scales of what steps are made of, for each device and stack: kernels, memory, networks, the
  host, products in 8 bits and attention (`planner.calibration.fit`), each within 20 % of what its
  profile says at first.

What is left then is what any number of runs of a source can say by these means. A run of which
stack or network is not known is off by how far all that it may be together are, as in
`benchmarks.unseen`; its scales are of the first.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.page import DOCS, put
from planner.calibration.fit import Prior, fit_of
from planner.calibration.parts import COUNT, Parts, parts_of
from planner.calibration.peaks import unread_peak
from planner.calibration.report import learnt_run, trusted
from planner.calibration.row import Row
from planner.calibration.trust import trusted_deviations
from planner.cost.configuration import Floats
from planner.cost.learnt import Learnt
from planner.cost.peaks import learnt_of_peaks
from planner.importers.measured_runs import read_measured_runs
from planner.schema.job import LearntPeak, LearntRun
from planner.validation.comparison import Comparison, Pair
from planner.validation.measurement import BULK_TIER, TINY_TIER
from planner.validation.reasons import SetAside
from planner.validation.report import compared
from planner.validation.subsets import SUBSETS

Places = NDArray[np.bool_]
_Kept = TypeVar("_Kept", LearntRun, LearntPeak)

_DENSE = "dense bf16, from 3B"
_PRIOR = Prior(deviations=np.full(COUNT, 0.2), noise_deviation=0.05)


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Logarithms of predicted over measured of runs of one source, [runs], as shipped and after.

    `after` has one row for each way to learn from all other runs, [ways, runs]; `dense` [runs] says
    which are of the subset that an aim of its own is for.
    """

    shipped: Floats
    after: Floats
    dense: Places = field(default_factory=lambda: np.zeros(0, dtype=bool))

    @property
    def bias_share(self) -> float:
        """Return mean(y)^2 over the mean of y^2."""
        square = float((self.shipped**2).mean())
        return float(self.shipped.mean()) ** 2 / square if square > 0.0 else 0.0

    def mape_ratios(self) -> Floats:
        """Return the mean of |predicted / measured - 1|, as shipped and after each way."""
        both = np.vstack([self.shipped, self.after])
        return np.asarray(np.abs(np.expm1(both)).mean(axis=1))


def by_one_factor(errors: Floats) -> Floats:
    """Return errors, [runs], less the mean of all others; of a single run as it is."""
    if len(errors) < 2:
        return errors
    return np.asarray(errors - (errors.sum() - errors) / (len(errors) - 1))


def by_scales(parts: Parts) -> Floats:
    """Return the errors of runs, [runs], each by the scales that all others ask for."""
    places = range(len(parts.measured))
    found = []
    for place in places:
        scales = fit_of(parts.some([other for other in places if other != place]), _PRIOR)
        found.append(parts.some([place]).log_errors(scales)[0][0])
    return np.array(found)


def step_errors(priced: Sequence[Comparison]) -> Errors | None:
    """Return the errors of a source's steps, `None` where none was measured."""
    kept = [one for one in priced if isinstance(one.step, Pair)]
    if not kept:
        return None
    shipped = np.array([_log_error(one.step) for one in kept])
    rows = [Row(case=one.case, measured_seconds=_measured(one.step)) for one in kept]
    runs = trusted(
        [_told(learnt_run(row), error) for row, error in zip(rows, shipped, strict=True)]
    )
    return Errors(
        shipped=shipped,
        after=np.array([by_one_factor(shipped), _left_out(Learnt.of(runs)), _scaled(rows)]),
        dense=np.array([SUBSETS[_DENSE](one) for one in kept]),
    )


def peak_errors(priced: Sequence[Comparison]) -> Errors | None:
    """Return the errors of a source's peaks, `None` where none was measured."""
    kept = [one for one in priced if isinstance(one.memory, Pair)]
    if not kept:
        return None
    shipped = np.array([_log_error(one.memory) for one in kept])
    peaks = trusted_peaks(
        [_told(unread_peak(one.case), error) for one, error in zip(kept, shipped, strict=True)]
    )
    learnt = _left_out(learnt_of_peaks(peaks))
    return Errors(shipped=shipped, after=np.array([by_one_factor(shipped), learnt]))


def trusted_peaks(peaks: Sequence[LearntPeak]) -> tuple[LearntPeak, ...]:
    """Return peaks, of which those that lie far from what all others say are less trusted."""

    def learnt_with(tried: Floats) -> Learnt:
        return learnt_of_peaks(_with_own(peaks, tried))

    least = np.array([peak.own_deviation for peak in peaks])
    return _with_own(peaks, trusted_deviations(learnt_with, least))


def _with_own(peaks: Sequence[LearntPeak], own: Floats) -> tuple[LearntPeak, ...]:
    return tuple(
        peak.model_copy(update={"own_deviation": float(value)})
        for peak, value in zip(peaks, own, strict=True)
    )


def _log_error(pair: Pair | SetAside) -> float:
    assert isinstance(pair, Pair)
    return math.log(pair.predicted / pair.measured)


def _measured(pair: Pair | SetAside) -> float:
    assert isinstance(pair, Pair)
    return pair.measured


def _told(run: _Kept, error: float) -> _Kept:
    """Return a run that is as far off as all that it may be together."""
    return run.model_copy(update={"log_error": -error})


def _left_out(learnt: Learnt) -> Floats:
    """Return the errors of runs, [runs], by all others."""
    return -learnt.left_out()[0]


def _scaled(rows: Sequence[Row]) -> Floats:
    """Return the errors of rows, [rows], each by the scales that others of its pair ask for."""
    found = np.zeros(len(rows))
    for pair in dict.fromkeys(row.pair for row in rows):
        places = [place for place, row in enumerate(rows) if row.pair == pair]
        found[places] = by_scales(parts_of([rows[place] for place in places], np.zeros(COUNT)))
    return found


def priced_runs(paths: Sequence[Path]) -> dict[str, list[Comparison]]:
    """Return the priced runs of each source: a file, or where there is one its families.

    Bulk runs and tiny ones of test suites are left out.
    """
    found: dict[str, list[Comparison]] = defaultdict(list)
    for path in paths:
        for one in compared(read_measured_runs(path)):
            if isinstance(one, Comparison) and one.case.run.tier not in {TINY_TIER, BULK_TIER}:
                found[path.stem if len(paths) > 1 else one.case.run.family_name].append(one)
    return found


def table(title: str, ways: Sequence[str], sources: dict[str, Errors]) -> Iterator[str]:
    """Yield a table by source, of all runs, of dense ones, and in the mean over sources."""
    yield f"| {title} | runs | MAPE | bias | spread within | of bias | {' | '.join(ways)} |"
    yield "|---" * (6 + len(ways)) + "|"
    for name, errors in sources.items():
        yield _line(name, errors)
    yield _line("**all runs**", _joined(list(sources.values())))
    dense = [_some(errors, errors.dense) for errors in sources.values() if errors.dense.any()]
    if dense:
        yield _line(_DENSE, _joined(dense))
    means = np.mean([errors.mape_ratios() for errors in sources.values()], axis=0)
    shares = float(np.mean([errors.bias_share for errors in sources.values()]))
    cells = ["**mean over sources**", str(len(sources)), f"{means[0]:.1%}", "", "", f"{shares:.0%}"]
    yield "| " + " | ".join([*cells, *(f"{mean:.1%}" for mean in means[1:])]) + " |"


def _joined(sources: Sequence[Errors]) -> Errors:
    return Errors(
        shipped=np.concatenate([errors.shipped for errors in sources]),
        after=np.concatenate([errors.after for errors in sources], axis=1),
    )


def _some(errors: Errors, chosen: Places) -> Errors:
    return Errors(shipped=errors.shipped[chosen], after=errors.after[:, chosen])


def _line(name: str, errors: Errors) -> str:
    means, shipped = errors.mape_ratios(), errors.shipped
    cells = [name, str(len(shipped)), f"{means[0]:.1%}", f"{math.expm1(shipped.mean()):+.1%}"]
    cells += [f"{math.expm1(shipped.std()):.1%}", f"{errors.bias_share:.0%}"]
    return "| " + " | ".join([*cells, *(f"{mean:.1%}" for mean in means[1:])]) + " |"


def _each(
    found: dict[str, list[Comparison]], errors_of: Callable[[Sequence[Comparison]], Errors | None]
) -> dict[str, Errors]:
    each = {name: errors_of(priced) for name, priced in found.items()}
    return {name: errors for name, errors in each.items() if errors is not None}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables as markdown, and write them where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.error_parts", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", help="measured runs, a source a file")
    parser.add_argument("--write", action="store_true", help="into docs/accuracy.md")
    options = parser.parse_args(arguments)
    found = priced_runs(sorted(options.files))
    ways = ("one factor", "as calibrate", "scales of parts")
    lines = [*table("step", ways, _each(found, step_errors)), ""]
    lines += table("peak", ways[:2], _each(found, peak_errors))
    print("\n".join(lines))
    if options.write:
        put("error parts", lines, page=DOCS / "accuracy.md")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
