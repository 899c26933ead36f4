"""Measured regret: how far the chosen plan's step is from the best that was measured, by model.

    python -m benchmarks.regret [--cluster cluster.json] [--seconds 60] [--rounds 4]
        [--models NAME ...] [--write]

Four ranks of this machine are profiled (or `--cluster` is what `meshwright profile` wrote), six
small models are planned, and for each all strategies of a stated grid that are legal and fit are
run, steps of all in turn. Regret is the median step of the chosen plan over the least median of
any; beside it stands the rank correlation (Spearman) of predicted and measured steps. With
`--write` the tables go into docs/regret.md. `--most N` runs N strategies, evenly from fastest to
slowest as predicted, to see whether all works: what it prints says so, and cannot be written.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import machine, machine_line
from benchmarks.page import DOCS, put
from benchmarks.regret_grid import RANK_COUNT, Entrant, entrants
from benchmarks.regret_models import Contest, contests
from benchmarks.regret_ranks import measured_plans
from planner.cli.machine_profile import measured_cluster
from planner.cli.profile import measured_figures
from planner.importers.clusters import read_cluster
from planner.planning import plan
from planner.resolution import cluster_document, model_document
from planner.schema.cluster import Cluster
from planner.schema.job import Job, Limits, Precision
from planner.schema.plan import Plan, ResolvedCluster, ResolvedModel
from planner.schema.strategy import Strategy
from planner.units import format_seconds

PAGE = DOCS / "regret.md"
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
    """What a model's strategies took, fastest first, and how many the executor refused."""

    contest: Contest
    finishes: tuple[Finish, ...]
    refusals: tuple[str, ...]

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


def main() -> int:
    """Print the tables; return 1 where a bar is missed or nothing could be compared."""
    options = _options()
    cluster = _cluster(options.cluster, options.seconds)
    chosen = [c for c in contests() if not options.models or c.name in options.models]
    results = [
        _said(contest_result(c, cluster, rounds=options.rounds, most=options.most)) for c in chosen
    ]
    lines = [*table(results), "", *details(results)]
    print("\n".join(lines))
    if options.most is not None:
        print(f"\nNo measurement: of every grid {options.most} strategies ran.")
        return 0
    if options.write:
        facts = machine_line(machine())
        conditions = f"{facts}; {options.rounds} rounds, load {os.getloadavg()[0]:.1f} at the end"
        put("regret", [conditions, "", *lines], page=PAGE)
    return 0 if meets_bars(results) else 1


def contest_result(
    contest: Contest, cluster: Cluster, *, rounds: int, most: int | None = None
) -> Result:
    """Plan the model, run its grid and the plan, and return what was measured.

    Raises:
        RuntimeError: if no plan fits.
    """
    model = model_document(contest.graph.name, contest.graph)
    where = _limited(model, cluster, contest)
    job = job_of(contest)
    answer = _planned(model, where, job)
    listed = entrants(model, where, job)
    own = Entrant(strategy=answer.strategy, predicted_seconds=answer.prediction.step_seconds.p50)
    if most is not None:
        listed = _spread(listed, most)
    listed = (own, *(item for item in listed if item.strategy != own.strategy))
    measured = measured_plans(
        answer, [item.strategy for item in listed], rank_count=RANK_COUNT, rounds=rounds
    )
    finishes = [
        Finish(entrant=entrant, seconds=found.seconds, is_chosen=entrant is own)
        for entrant, found in zip(listed, measured, strict=True)
        if found.seconds is not None
    ]
    refusals = tuple(found.refusal for found in measured if found.refusal is not None)
    if not any(finish.is_chosen for finish in finishes):
        raise RuntimeError(f"{contest.name}: the executor refuses the plan: {refusals[0]}")
    return Result(
        contest=contest,
        finishes=tuple(sorted(finishes, key=lambda finish: finish.seconds)),
        refusals=refusals,
    )


def job_of(contest: Contest) -> Job:
    """Return the job: fp32, the grid's techniques, and no others that the grid has not."""
    return Job(
        global_batch_size=contest.global_batch_size,
        sequence_length=contest.sequence_length,
        precision=Precision.FP32,
        limits=Limits.model_validate(
            {
                "context_parallel_degree": 1,
                "virtual_pipeline_degree": {"max": 2},
                "zero_stages": [0, 1, 3],
                "activation_checkpointing": ["none", "full"],
                "offload": [],
                "pipeline_schedules": ["1f1b", "interleaved_1f1b"],
            }
        ),
    )


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
            mark = "chosen" if finish.is_chosen else ""
            name = label(finish.entrant.strategy)
            yield f"| {name} | {format_seconds(finish.seconds)} | {predicted} | {mark} |"
        for refusal in sorted(set(result.refusals)):
            yield f"\nRefused {result.refusals.count(refusal)} times: {refusal}"
        yield ""


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


def _spread(listed: Sequence[Entrant], most: int) -> tuple[Entrant, ...]:
    ordered = sorted(listed, key=lambda item: item.predicted_seconds)
    places = {round(place * (len(ordered) - 1) / max(most - 1, 1)) for place in range(most)}
    return tuple(ordered[place] for place in sorted(places) if place < len(ordered))


def _planned(model: ResolvedModel, cluster: ResolvedCluster, job: Job) -> Plan:
    answer = plan(model, cluster, job)
    if not isinstance(answer, Plan):
        raise RuntimeError(f"{model.resolved.name} has no plan that fits")  # noqa: TRY004
    return answer


def _limited(model: ResolvedModel, cluster: Cluster, contest: Contest) -> ResolvedCluster:
    """Return the cluster, its memory cut to the contest's share of the fastest plan's tensors."""
    whole = cluster_document(cluster.name, cluster)
    if contest.memory_ratio is None:
        return whole
    job = job_of(contest)
    stages = _planned(model, whole, job).prediction.stages
    fullest = max(stages, key=lambda stage: stage.peak_memory_bytes)
    beside = fullest.memory_bytes.runtime
    tensors = fullest.peak_memory_bytes - beside
    room = (beside + contest.memory_ratio * tensors) / (1.0 - job.limits.memory_headroom_ratio)
    (group,) = cluster.node_groups
    cut = cluster.model_copy(
        update={"node_groups": (group.model_copy(update={"memory_bytes": room}),)}
    )
    return cluster_document(cluster.name, cut)


def _cluster(path: Path | None, seconds: float) -> Cluster:
    if path is not None:
        return read_cluster(str(path))[1]
    return measured_cluster(measured_figures(ranks=RANK_COUNT, device="cpu", seconds=seconds))


def _said(result: Result) -> Result:
    print(
        f"{result.contest.name}: {len(result.finishes)} strategies, regret {result.regret:.3f}, "
        f"rank correlation {result.correlation:.2f}",
        file=sys.stderr,
        flush=True,
    )
    return result


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regret", description=__doc__)
    parser.add_argument("--cluster", type=Path, help="what `meshwright profile --ranks 4` wrote")
    parser.add_argument("--seconds", type=float, default=60.0, help="of profiling, without it")
    parser.add_argument("--rounds", type=int, default=4, help="timed steps of each strategy")
    parser.add_argument("--models", nargs="*", choices=[c.name for c in contests()], default=[])
    parser.add_argument("--most", type=int, help="strategies of each grid, to see that all works")
    parser.add_argument("--write", action="store_true", help="into docs/regret.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
