"""Results of the regret benchmark: regret, rank correlation, and the tables that say so."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.regret_grid import Entrant
from benchmarks.regret_models import Contest
from planner.schema.strategy import Strategy
from planner.units import format_seconds

MEAN_BAR, WORST_BAR, CORRELATION_BAR = 1.05, 1.15, 0.8
SHOWN_STRATEGIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """A strategy's measured step beside the predicted one."""

    entrant: Entrant
    seconds: float
    is_chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a model's strategies took, fastest first, and how many the executor refused.

    Where the plan was not run, the strategy that is predicted fastest stands in for it.
    """

    contest: Contest
    finishes: tuple[Finish, ...]
    refusals: tuple[str, ...]
    plan_was_run: bool = True

    @property
    def chosen(self) -> Finish:
        """Return the planner's choice."""
        return next(finish for finish in self.finishes if finish.is_chosen)

    @property
    def regret(self) -> float:
        """Return the chosen plan's median step over the least of any."""
        return self.chosen.seconds / self.finishes[0].seconds

    @property
    def correlation(self) -> float:
        """Return Spearman's rank correlation of predicted and measured steps."""
        predicted = [finish.entrant.predicted_seconds for finish in self.finishes]
        return spearman(predicted, [finish.seconds for finish in self.finishes])


def table(results: Sequence[Result]) -> Iterator[str]:
    """Yield a row for each model, and what they come to."""
    yield "| model | strategies | chosen | its step | best step | regret | rank correlation |"
    yield "|---|---|---|---|---|---|---|"
    for result in results:
        chosen, best = result.chosen, result.finishes[0]
        yield (
            f"| {result.contest.name} | {len(result.finishes)} | {label(chosen.entrant.strategy)} "
            f"| {format_seconds(chosen.seconds)} | {format_seconds(best.seconds)} "
            f"| {result.regret:.3f} | {result.correlation:.2f} |"
        )
    regrets = [result.regret for result in results]
    correlations = [result.correlation for result in results]
    yield ""
    yield (
        f"Mean regret {statistics.mean(regrets):.3f} (bar {MEAN_BAR}), worst {max(regrets):.3f} "
        f"(bar {WORST_BAR}), mean rank correlation {statistics.mean(correlations):.2f} "
        f"(bar {CORRELATION_BAR})."
    )


def details(results: Sequence[Result]) -> Iterator[str]:
    """Yield the fastest strategies of each model, and what the executor refused."""
    for result in results:
        yield f"### {result.contest.name}"
        yield ""
        yield "| strategy | measured | predicted | |"
        yield "|---|---|---|---|"
        shown = [f for i, f in enumerate(result.finishes) if i < SHOWN_STRATEGIES or f.is_chosen]
        for finish in shown:
            predicted = format_seconds(finish.entrant.predicted_seconds)
            mark = "" if not finish.is_chosen else "chosen" if result.plan_was_run else "stands in"
            name = label(finish.entrant.strategy)
            yield f"| {name} | {format_seconds(finish.seconds)} | {predicted} | {mark} |"
        for refusal in sorted(set(result.refusals)):
            yield f"\nRefused {result.refusals.count(refusal)} times: {refusal}"
        yield ""


def biases(results: Sequence[Result]) -> Iterator[str]:
    """Yield a row for each kind of layout: measured over predicted steps, in the geometric mean."""
    ratios: dict[str, list[float]] = {}
    for finish in (finish for result in results for finish in result.finishes):
        found = ratios.setdefault(_kind(finish.entrant.strategy), [])
        found.append(finish.seconds / finish.entrant.predicted_seconds)
    yield "| layout | strategies | measured / predicted | least | most |"
    yield "|---|---|---|---|---|"
    for kind in sorted(ratios):
        found = ratios[kind]
        mean = statistics.geometric_mean(found)
        yield f"| {kind} | {len(found)} | {mean:.2f} | {min(found):.2f} | {max(found):.2f} |"


def _kind(strategy: Strategy) -> str:
    """Return what of a layout its ranks wait for most."""
    if strategy.tensor_parallel_degree > 1:
        return f"tensor parallel {strategy.tensor_parallel_degree}"
    if strategy.expert_parallel_degree > 1:
        return f"expert parallel {strategy.expert_parallel_degree}"
    if strategy.pipeline_parallel_degree == 1:
        return "data parallel"
    if strategy.virtual_degree == 1:
        return f"pipeline of {strategy.pipeline_parallel_degree}"
    count = " of one micro-batch" if strategy.micro_batch_count == 1 else ""
    return f"interleaved pipeline{count}"


def meets_bars(results: Sequence[Result]) -> bool:
    """Return whether mean and worst regret and the mean correlation meet their bars."""
    if not results:
        return False
    regrets = [result.regret for result in results]
    correlation = statistics.mean(result.correlation for result in results)
    return (
        statistics.mean(regrets) <= MEAN_BAR
        and max(regrets) <= WORST_BAR
        and correlation >= CORRELATION_BAR
    )


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the correlation of ranks; equal values share their mean rank.

    0 where one of the two is all equal: nothing is ranked.
    """
    ranks = [_ranks(values) for values in (first, second)]
    try:
        return statistics.correlation(*ranks)
    except statistics.StatisticsError:
        return 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]


def label(strategy: Strategy) -> str:
    """Return a strategy in few words."""
    words = [
        f"{name}{degree}"
        for name, degree in (
            ("tp", strategy.tensor_parallel_degree),
            ("pp", strategy.pipeline_parallel_degree),
            ("dp", strategy.replicate_degree * strategy.shard_degree),
            ("ep", strategy.expert_parallel_degree),
        )
        if degree > 1
    ]
    groups = [group for stage in strategy.stages or () for group in stage.layers]
    zero = sorted({group.zero_stage for group in groups})
    words.append("zero" + "+".join(str(stage) for stage in zero))
    modes = sorted({group.activation_checkpointing.value for group in groups} - {"none"})
    words += [f"ac-{mode}" for mode in modes]
    if strategy.virtual_degree > 1:
        words.append("interleaved")
    if strategy.pipeline_parallel_degree > 1:
        counts = "/".join(str(stage.block_count) for stage in strategy.stages or ())
        words.append(f"blocks {counts}")
    return " ".join([*words, f"mb{strategy.micro_batch_size}x{strategy.micro_batch_count}"])
