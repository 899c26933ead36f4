"""Measured regret: how far the chosen plan's step is from the best that was measured, by model.

    python -m benchmarks.regret [--cluster cluster.json] [--seconds 60] [--models NAME ...]
        [--rounds 1] [--final-rounds 10] [--out rows.json] [--write]
    python -m benchmarks.regret --from rows.json ... [--cluster cluster.json] [--write]

Four ranks of this machine are profiled (or `--cluster` is what `meshwright profile` wrote), six
small models are planned, and for each all strategies of a stated grid that are legal and fit are
run, steps of all in turn. Regret is the median step of the chosen plan over the least median of
any; beside it stands the rank correlation (Spearman) of predicted and measured steps. With
`--write` the tables go into docs/regret.md, with `--out` every step into a file.

`--from` judges such files again with the cost model as it is now, and runs nothing: models may be
run one at a time. A plan that was not run among them is stood in for by the row that is predicted
fastest, which is said, and cannot be written. Nor can `--most N`, which runs N strategies, evenly
from fastest to slowest as predicted, to see whether all works.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.machine import machine, machine_line
from benchmarks.page import DOCS, put
from benchmarks.regret_grid import RANK_COUNT, Entrant, entrants
from benchmarks.regret_models import Contest, contests, unseen_contests
from benchmarks.regret_results import Finish, Result, biases, details, meets_bars, table
from benchmarks.regret_rows import MeasuredModel, read_rows, write_rows
from executor.trials import Rounds, measured_trials
from planner.cli.profile import profiled
from planner.cost.fitting import room
from planner.errors import InputError
from planner.hardware import profile_of
from planner.importers.clusters import read_cluster
from planner.planning import estimates, plan
from planner.requests.resolution import cluster_document, model_document
from planner.schema.cluster import Cluster
from planner.schema.job import Job, Limits, Precision
from planner.schema.plan import Plan, ResolvedCluster, ResolvedModel
from planner.schema.strategy import Strategy
from planner.schema.trial import typical_seconds
from planner.workload.model import model_workload

PAGE = DOCS / "regret.md"


def main() -> int:
    """Print the tables; return 1 where a bar is missed or nothing could be compared."""
    options = _options()
    asked = options.models or [contest.name for contest in contests()]
    wanted = [c for c in (*contests(), *unseen_contests()) if c.name in asked]
    named = {contest.name: contest for contest in wanted}
    if options.rows:
        kept = [model for model in read_rows(options.rows) if model.name in named]
        models = [_on(model, options.cluster) for model in kept]
    else:
        models = _measured_models(wanted, options)
    results = [_said(judged(named[model.name], model)) for model in models]
    lines = [*table(results), "", *biases(results), "", *details(results)]
    print("\n".join(lines))
    if options.write:
        _write(models, results, lines, is_part=options.most is not None)
    return 0 if meets_bars(results) else 1


def _measured_models(wanted: Sequence[Contest], options: argparse.Namespace) -> list[MeasuredModel]:
    """Measure one model after another, and keep what there is after each."""
    cluster = _cluster(options.cluster, options.seconds)
    models: list[MeasuredModel] = []
    for contest in wanted:
        models.append(measured(contest, cluster, options))
        if options.out is not None:
            write_rows(options.out, models)
    return models


def measured(contest: Contest, cluster: Cluster, options: argparse.Namespace) -> MeasuredModel:
    """Plan the model, run its grid and the plan, and return the steps, the plan's first.

    Raises:
        RuntimeError: if no plan fits.
    """
    model = model_document(contest.graph.name, contest.graph)
    where = _limited(model, cluster, contest)
    answer = _planned(model, where, job_of(contest))
    listed = entrants(model, where, job_of(contest))
    if options.most is not None:
        listed = _spread(listed, options.most)
    others = (item.strategy for item in listed if _alike(item.strategy) != _alike(answer.strategy))
    strategies = [answer.strategy, *others]
    rows = measured_trials(
        [answer.model_copy(update={"strategy": strategy}) for strategy in strategies],
        rounds=Rounds(least=options.rounds, most=options.rounds, final=options.final_rounds),
    )
    return MeasuredModel(
        name=contest.name,
        cluster=where.resolved,
        conditions=f"{options.rounds} rounds and {options.final_rounds} final ones, "
        f"load {os.getloadavg()[0]:.1f} at the end, {machine_line(machine())}",
        rows=rows,
    )


def judged(contest: Contest, measured: MeasuredModel) -> Result:
    """Return what was measured beside what is predicted now, for the plan as it is chosen now.

    Raises:
        RuntimeError: if no plan fits, or the executor refuses the plan.
    """
    model = model_document(contest.graph.name, contest.graph)
    where = cluster_document(measured.cluster.name, measured.cluster)
    job = job_of(contest)
    ran = [
        (row.strategy, seconds)
        for row, seconds in zip(measured.rows, typical_seconds(measured.rows), strict=True)
        if seconds is not None
    ]
    answers = estimates(model, where, job, [strategy for strategy, _ in ran])
    priced = [
        (
            Entrant(strategy=strategy, predicted_seconds=answer.prediction.step_seconds.p50),
            seconds,
        )
        for (strategy, seconds), answer in zip(ran, answers, strict=True)
        if not isinstance(answer, InputError)
    ]
    chosen = _alike(_planned(model, where, job).strategy)
    refusals = {_alike(row.strategy): row.refusal for row in measured.rows if row.refusal}
    if chosen in refusals:
        raise RuntimeError(f"{contest.name}: the executor refuses the plan: {refusals[chosen]}")
    was_run = any(_alike(entrant.strategy) == chosen for entrant, _ in priced)
    if not was_run:
        chosen = _alike(min(priced, key=lambda pair: pair[0].predicted_seconds)[0].strategy)
    finishes = (
        Finish(entrant=entrant, seconds=seconds, is_chosen=_alike(entrant.strategy) == chosen)
        for entrant, seconds in priced
    )
    return Result(
        contest=contest,
        finishes=tuple(sorted(finishes, key=lambda finish: finish.seconds)),
        refusals=tuple(refusals.values()),
        plan_was_run=was_run,
    )


def _alike(strategy: Strategy) -> Strategy:
    """Return the strategy without the names of device groups, of which there is one."""
    stages = tuple(
        stage.model_copy(update={"device_group": None}) for stage in strategy.stages or ()
    )
    return strategy.model_copy(update={"stages": stages})


def job_of(contest: Contest) -> Job:
    """Return the job: fp32, the grid's techniques, and no others that the grid has not."""
    return Job(
        global_batch_size=contest.global_batch_size,
        sequence_length=contest.sequence_length,
        precision=Precision.FP32,
        expert_load_ratio=contest.expert_load_ratio,
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
    (group,) = cluster.node_groups
    own = room(model_workload(model.resolved), profile_of(cluster, group.device), job)
    memory = own.device_bytes(beside + contest.memory_ratio * tensors)
    cut = cluster.model_copy(
        update={"node_groups": (group.model_copy(update={"memory_bytes": memory}),)}
    )
    return cluster_document(cluster.name, cut)


def _cluster(path: Path | None, seconds: float) -> Cluster:
    if path is not None:
        return read_cluster(str(path))[1]
    return profiled(ranks=RANK_COUNT, device="cpu", seconds=seconds).cluster


def _on(model: MeasuredModel, path: Path | None) -> MeasuredModel:
    """Return the model on the devices of the cluster at `path`, with the memory that it had."""
    if path is None:
        return model
    devices = read_cluster(str(path))[1]
    (group,) = model.cluster.node_groups
    (named,) = devices.node_groups
    moved = devices.model_copy(
        update={"node_groups": (named.model_copy(update={"memory_bytes": group.memory_bytes}),)}
    )
    return model.model_copy(update={"cluster": moved})


def _write(
    models: Sequence[MeasuredModel], results: Sequence[Result], lines: list[str], *, is_part: bool
) -> None:
    if is_part or not all(result.plan_was_run for result in results):
        raise SystemExit("not written: not all strategies, or not all chosen plans, were run")
    conditions = [f"{model.name}: {model.conditions}." for model in models]
    missing = sorted({contest.name for contest in contests()} - {model.name for model in models})
    if missing:
        conditions.append(f"Not measured: {', '.join(missing)}.")
    paragraphs = [text for condition in conditions for text in ("", condition)]
    put("regret", [*lines, *paragraphs], page=PAGE)


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
    parser.add_argument("--rounds", type=int, default=1, help="timed steps of each strategy")
    parser.add_argument("--final-rounds", type=int, default=10, help="more of those close to best")
    parser.add_argument("--from", dest="rows", nargs="+", type=Path, default=[], metavar="ROWS")
    parser.add_argument("--out", type=Path, metavar="ROWS", help="every step, for --from")
    parser.add_argument(
        "--models",
        nargs="*",
        default=[],
        choices=[c.name for c in (*contests(), *unseen_contests())],
    )
    parser.add_argument("--most", type=int, help="strategies of each grid, to see that all works")
    parser.add_argument("--write", action="store_true", help="into docs/regret.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
