"""Layouts: how right steps of mixtures are by what they are divided over, and how pairs are ranked.

A job is one source's model on as many devices of a kind, with one format, length and batch, and a
layout of it a strategy with what runs again beside. Runs of one layout, as of several releases,
are one: the geometric mean of their steps. Two layouts of a job are ranked rightly where the one
that is predicted faster was measured faster; equal predictions rank nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from statistics import fmean
from typing import NamedTuple

from planner.schema.job import Precision
from planner.validation.comparison import Comparison, Pair
from planner.validation.subsets import SUBSETS
from planner.validation.summary import error_summary

MIXTURES = SUBSETS["mixture of experts"]
_APART = math.log(1.05)


def mixture_lines(found: Sequence[Comparison]) -> Iterator[str]:
    """Yield a table of mixtures' steps by their layout."""
    mixtures = [one for one in found if MIXTURES(one)]
    yield "| mixtures | step: runs | MAPE | bias | in interval |"
    yield "|---|---|---|---|---|"
    for name, chosen in _KINDS.items():
        pairs = [one.step for one in mixtures if chosen(one) and isinstance(one.step, Pair)]
        errors = error_summary(pairs)
        if errors is not None:
            yield (
                f"| {name} | {errors.count} | {errors.mape_ratio:.1%} | {errors.bias_ratio:+.1%} "
                f"| {errors.coverage_ratio:.0%} |"
            )


def ranking_lines(found: Sequence[Comparison]) -> Iterator[str]:
    """Yield a table of pairs of layouts that are ranked rightly, by subset."""
    yield "| pairs of layouts | pairs | ranked rightly | 5 % apart or more | ranked rightly |"
    yield "|---|---|---|---|---|"
    for name, chosen in SUBSETS.items():
        pairs = list(ranked_pairs([one for one in found if chosen(one)]))
        apart = [pair for pair in pairs if abs(pair.measured) >= _APART]
        if pairs:
            yield f"| {name} | {_counts(pairs)} | {_counts(apart)} |"


class RankedPair(NamedTuple):
    """Two layouts of a job: logarithms of the first's step over the second's."""

    predicted: float
    measured: float

    @property
    def is_right(self) -> bool:
        """Return whether the faster one is predicted faster."""
        return self.predicted * self.measured > 0.0


def ranked_pairs(found: Sequence[Comparison]) -> Iterator[RankedPair]:
    """Yield the pairs of layouts of each job."""
    jobs: dict[object, dict[object, list[Pair]]] = defaultdict(lambda: defaultdict(list))
    for one in found:
        if isinstance(one.step, Pair):
            jobs[_job(one)][_layout(one)].append(one.step)
    for layouts in jobs.values():
        means = [
            (fmean(math.log(s.predicted) for s in runs), fmean(math.log(s.measured) for s in runs))
            for runs in layouts.values()
        ]
        for (predicted, measured), other in combinations(means, 2):
            yield RankedPair(predicted - other[0], measured - other[1])


def _job(one: Comparison) -> tuple[object, ...]:
    case = one.case
    job, run = case.job, case.run
    return (
        run.family_name,
        run.model,
        run.task,
        case.hardware.kinds[0].device,
        case.hardware.device_count,
        run.precision,
        job.sequence_length,
        job.global_batch_size,
    )


def _layout(one: Comparison) -> tuple[object, ...]:
    again = tuple(layer.again for layer, _ in one.case.workload.runs)
    return one.case.strategy, repr(again)


def _counts(pairs: Sequence[RankedPair]) -> str:
    right = sum(pair.is_right for pair in pairs)
    return f"{len(pairs)} | {right / len(pairs):.0%}" if pairs else "0 | "


def _depth(one: Comparison) -> int:
    return one.case.strategy.pipeline_parallel_degree


def _crosses_nodes(one: Comparison) -> bool:
    """Return whether ranks that share experts lie in several of the innermost domains."""
    strategy = one.case.strategy
    ranks = strategy.expert_parallel_degree * (strategy.expert_tensor_parallel_degree or 1)
    return ranks > one.case.hardware.kinds[0].levels[0].device_count


def _is_shared(one: Comparison) -> bool:
    return one.case.strategy.expert_parallel_degree > 1


def _runs_again(one: Comparison) -> bool:
    return one.case.run.recompute not in {None, "none"}


_KINDS: dict[str, Callable[[Comparison], bool]] = {
    "no pipeline": lambda c: _depth(c) == 1,
    "pipelines of 2 to 4": lambda c: 2 <= _depth(c) <= 4,
    "pipelines of 8 and 16": lambda c: _depth(c) >= 8,
    "experts within a domain": lambda c: _is_shared(c) and not _crosses_nodes(c),
    "experts over domains": lambda c: _is_shared(c) and _crosses_nodes(c),
    "without expert parallelism": lambda c: not _is_shared(c),
    "nothing runs again": lambda c: not _runs_again(c),
    "blocks or parts run again": _runs_again,
    "in 16 bits": lambda c: c.case.job.precision is not Precision.FP8,
    "in 8 bits": lambda c: c.case.job.precision is Precision.FP8,
}
