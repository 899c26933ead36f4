"""`python -m benchmarks.simulation`: how far the closed form of a step is from its simulation.

The search minimises a closed form; plans and estimates also carry the step with their pipeline run
event by event. Drawn here, with a fixed seed: legal strategies with uneven stages, and the plans
that the planner chooses where it must use a pipeline. Of a few jobs, the plan is held against the
best of each schedule alone: its regret is how much longer its simulated step is than the shortest.
With `--write` the tables stand in docs/decisions/0005.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from random import Random

import numpy as np

from benchmarks.page import DOCS, put
from planner.errors import InputError
from planner.planning import estimate, plan, resolved_cluster, resolved_model
from planner.schema.job import Job, Limits
from planner.schema.plan import Infeasible, Prediction, ResolvedModel
from planner.schema.strategy import (
    V_SCHEDULES,
    ActivationCheckpointing,
    LayerGroup,
    PipelineSchedule,
    Stage,
    Strategy,
)
from planner.units import format_seconds

PAGE = DOCS / "decisions" / "0005-schedules-are-priced-by-forms-that-a-simulation-gave.md"
MODELS = ("llama-3-8b", "llama-3-70b", "mixtral-8x7b", "qwen3-30b-a3b")
CLUSTER = "8x8xh100-sxm5-80gb"
DEVICE_COUNT = 64
SEQUENCE_LENGTH = 4096
FAR_RATIO = 0.03
JOBS = (  # model, sequences, tokens, fewest stages
    ("llama-3-70b", 64, 4096, 4),
    ("llama-3-70b", 256, 4096, 2),
    ("llama-3-8b", 64, 8192, 4),
    ("qwen3-30b-a3b", 128, 4096, 4),
    ("mixtral-8x7b", 64, 4096, 4),
)
CHECKPOINTING = tuple(ActivationCheckpointing)

Errors = dict[str, list[float]]


def main() -> None:
    """Draw, measure and print."""
    options = _options()
    rows = [*_table("uneven strategies", random_errors(options.count, options.seed))]
    rows += ["", *_table("chosen plans", planned_errors(options.plans, options.seed))]
    rows += ["", *_regret_table()]
    print("\n".join(rows))
    if options.write:
        put("simulation", rows, page=PAGE)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulation", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="strategies of each schedule")
    parser.add_argument("--plans", type=int, default=8, help="plans of each schedule")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help=f"into docs/decisions/{PAGE.name}")
    return parser.parse_args()


def random_errors(count: int, seed: int) -> Errors:
    """Return the errors of `count` legal strategies of each schedule."""
    models = [resolved_model(name) for name in MODELS]
    return {
        schedule.value: list(_errors_of(schedule, models, count=count, seed=seed))
        for schedule in PipelineSchedule
    }


def _errors_of(
    schedule: PipelineSchedule, models: Sequence[ResolvedModel], *, count: int, seed: int
) -> Iterator[float]:
    random = Random(f"{seed}/{schedule}")  # noqa: S311 - a draw of cases, no secret
    cluster = resolved_cluster(CLUSTER)
    found = 0
    while found < count:
        model = random.choice(models)
        strategy, batch = random_strategy(schedule, model.resolved.block_count, random)
        job = Job(global_batch_size=batch, sequence_length=SEQUENCE_LENGTH)
        try:
            priced = estimate(model, cluster, job, strategy)
        except InputError:
            continue
        found += 1
        yield error_ratio(priced.prediction)


def random_strategy(
    schedule: PipelineSchedule, block_count: int, random: Random
) -> tuple[Strategy, int]:
    """Return a strategy with uneven stages, each checkpointed its own way, and its batch."""
    degree, tensor = random.choice((2, 4, 8)), random.choice((1, 2, 4, 8))
    virtual = 2 if schedule in V_SCHEDULES else 1
    if schedule is PipelineSchedule.INTERLEAVED:
        virtual = random.choice((2, 4)) if degree < 8 else 2
    shard = DEVICE_COUNT // (degree * tensor)
    micro_batches = random.choice((1, 2, 3, 4, 8)) * degree
    strategy = Strategy(
        tensor_parallel_degree=tensor,
        sequence_parallel=tensor > 1,
        pipeline_parallel_degree=degree,
        virtual_pipeline_degree=virtual,
        pipeline_schedule=schedule,
        data_parallel_shard_degree=shard,
        micro_batch_count=micro_batches,
        stages=_stages(block_count, degree * virtual, random, plain=schedule in V_SCHEDULES),
    )
    return strategy, micro_batches * shard


def _stages(block_count: int, count: int, random: Random, *, plain: bool) -> tuple[Stage, ...]:
    """Return even stages from which up to one block in two of them has moved to another."""
    blocks = [block_count // count + (index < block_count % count) for index in range(count)]
    for _ in range(random.randint(0, count // 2)):
        giver, taker = random.sample(range(count), 2)
        if blocks[giver] > 1:
            blocks[giver], blocks[taker] = blocks[giver] - 1, blocks[taker] + 1
    firsts = [sum(blocks[:index]) for index in range(count)]
    return tuple(
        Stage(
            stage=index,
            layers=(
                LayerGroup(
                    first_block=firsts[index],
                    block_count=blocks[index],
                    activation_checkpointing=CHECKPOINTING[0]
                    if plain
                    else random.choice(CHECKPOINTING),
                ),
            ),
        )
        for index in range(count)
    )


def planned_errors(count: int, seed: int) -> Errors:
    """Return the errors of the plans chosen with each schedule on a pipeline of two or more."""
    cluster = resolved_cluster(CLUSTER)
    errors: Errors = {}
    for schedule in PipelineSchedule:
        random = Random(f"{seed}/{schedule}/plans")  # noqa: S311 - a draw of cases, no secret
        errors[schedule.value] = []
        for _ in range(count):
            job = _pipelined_job(schedule, random)
            found = plan(resolved_model(random.choice(MODELS)), cluster, job)
            if not isinstance(found, Infeasible):
                errors[schedule.value].append(error_ratio(found.prediction))
    return errors


def _pipelined_job(schedule: PipelineSchedule, random: Random) -> Job:
    fields = {
        "pipeline_schedules": [schedule],
        "pipeline_parallel_degree": {"min": random.choice((2, 4, 8)), "max": 8},
    }
    return Job(
        global_batch_size=random.choice((64, 128, 512)),
        sequence_length=random.choice((2048, 4096, 8192)),
        limits=Limits.model_validate(fields),
    )


def simulated_steps(
    model: str, batch: int, tokens: int, stages: int
) -> dict[str, tuple[str, float]]:
    """Return the schedule and simulated seconds of the plan among all schedules, and of each."""
    found = {}
    asked = {"all": tuple(PipelineSchedule), **{s.value: (s,) for s in PipelineSchedule}}
    for name, schedules in asked.items():
        fields = {
            "pipeline_schedules": schedules,
            "pipeline_parallel_degree": {"min": stages, "max": 8},
        }
        job = Job(
            global_batch_size=batch, sequence_length=tokens, limits=Limits.model_validate(fields)
        )
        answer = plan(resolved_model(model), resolved_cluster(CLUSTER), job)
        if not isinstance(answer, Infeasible) and answer.prediction.simulated is not None:
            seconds = answer.prediction.simulated.step_seconds
            found[name] = (answer.strategy.pipeline_schedule.value, seconds)
    return found


def _regret_table() -> Iterator[str]:
    yield "| job, at least so many stages | chosen | simulated | shortest simulated | regret |"
    yield "|---|---|---|---|---|"
    for model, batch, tokens, stages in JOBS:
        steps = simulated_steps(model, batch, tokens, stages)
        schedule, seconds = steps["all"]
        best, least = min(steps.values(), key=lambda step: step[1])
        yield (
            f"| {model}, {batch} x {tokens}, {stages} | {schedule} | {format_seconds(seconds)} | "
            f"{best}, {format_seconds(least)} | {seconds / least - 1:+.1%} |"
        )


def error_ratio(prediction: Prediction) -> float:
    """Return the closed form over the simulation, less 1."""
    if prediction.simulated is None:
        raise ValueError("the prediction has no simulation")
    return prediction.simulated.closed_form_error_ratio


def _table(title: str, errors: Errors) -> Iterator[str]:
    yield f"| {title} | number | least | 5 % | median | 95 % | most | beyond 3 % either way |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, found in errors.items():
        if found:
            least, low, median, high, most = np.percentile(found, (0, 5, 50, 95, 100))
            far = np.mean(np.abs(found) > FAR_RATIO)
            figures = " | ".join(f"{x:+.1%}" for x in (least, low, median, high, most))
            yield f"| {name} | {len(found)} | {figures} | {far:.0%} |"


if __name__ == "__main__":
    main()
