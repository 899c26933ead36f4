"""Ranks of the regret benchmark: every plan built, then steps of all of them in turn.

All plans of a model live side by side, so that whatever else the machine does meets them alike.
Those that come close to the fastest, and the chosen one, run further rounds: the least of many
medians of few steps would be a lucky one. What is far off needs one step to be told from the rest.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.multiprocessing.spawn import spawn

from benchmarks.regret_rows import MeasuredRow
from executor.cores import keep_to_own_cores
from executor.data import corpus_batches
from executor.environment import LAUNCHER_PROCESS
from executor.losses import next_token_loss
from executor.mesh import RankMesh
from executor.models.decoder import Decoder
from executor.rank_main import die_with_launcher
from executor.session import Session
from executor.trainer import Trainer
from planner.errors import InputError
from planner.schema.plan import Plan
from planner.schema.strategy import Strategy

_TIMEOUT = timedelta(minutes=5)
_WARM_UP_STEPS = 1
# Of the least median: who runs heats, and who the final rounds, beyond the worst regret's bar.
_HEAT_RATIO, _FINAL_RATIO = 1.6, 1.25
_HEATS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Outing:
    """Where ranks find their plans and leave their answer, and how many rounds they run.

    `rounds` are of all plans, `final_rounds` of those close to the fastest and of the first.
    """

    rank_count: int
    rounds: int
    final_rounds: int
    plans_path: str
    answer_path: str
    store_path: str


def measured_rows(
    plan: Plan,
    strategies: Sequence[Strategy],
    *,
    rank_count: int,
    rounds: int,
    final_rounds: int,
) -> tuple[MeasuredRow, ...]:
    """Return the steps of each strategy for the model and job of `plan`, in their order.

    The first of them is in the final rounds however slow it is.
    """
    os.environ[LAUNCHER_PROCESS] = str(os.getpid())
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="meshwright-regret-") as directory:
        folder = Path(directory)
        plans = [
            plan.model_copy(update={"strategy": strategy}).model_dump(mode="json")
            for strategy in strategies
        ]
        (folder / "plans.json").write_text(json.dumps(plans), encoding="utf-8")
        outing = Outing(
            rank_count=rank_count,
            rounds=rounds,
            final_rounds=final_rounds,
            plans_path=str(folder / "plans.json"),
            answer_path=str(folder / "answer.json"),
            store_path=str(folder / "store"),
        )
        spawn(_rank, args=(outing,), nprocs=rank_count)  # type: ignore[no-untyped-call]
        answers = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    return tuple(
        MeasuredRow(strategy=strategy, **answer)
        for strategy, answer in zip(strategies, answers, strict=True)
    )


def _rank(rank: int, outing: Outing) -> None:
    die_with_launcher()
    torch.set_num_threads(1)
    keep_to_own_cores(rank, outing.rank_count)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{outing.store_path}",
        rank=rank,
        world_size=outing.rank_count,
        timeout=_TIMEOUT,
    )
    plans = [
        Plan.model_validate(fields)
        for fields in json.loads(Path(outing.plans_path).read_text(encoding="utf-8"))
    ]
    begun = time.perf_counter()
    runners = _runners(plans)
    built = time.perf_counter()
    times = _raced(runners, outing)
    if rank == 0:
        print(
            f"{len(runners)} plans built in {built - begun:.0f} s, "
            f"run in {time.perf_counter() - built:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    answers: list[dict[str, Any]] = [
        {"step_seconds": spent} if isinstance(runner, _Runner) else {"refusal": runner}
        for runner, spent in zip(runners, times, strict=True)
    ]
    if rank == 0:
        Path(outing.answer_path).write_text(json.dumps(answers), encoding="utf-8")
    distributed.barrier()
    distributed.destroy_process_group()


def _raced(runners: Sequence[_Runner | str], outing: Outing) -> list[list[float]]:
    """Return the seconds of each runner's steps; ranks agree on them, and so on who is close."""
    times: list[list[float]] = [[] for _ in runners]
    able = [place for place, runner in enumerate(runners) if isinstance(runner, _Runner)]
    _turns(runners, able, [[] for _ in runners], count=_WARM_UP_STEPS)
    _turns(runners, able, times, count=outing.rounds)
    for ratio, count in ((_HEAT_RATIO, _HEATS), (_FINAL_RATIO, outing.final_rounds)):
        medians = {place: statistics.median(times[place]) for place in able}
        limit = ratio * min(medians.values(), default=0.0)
        able = [place for place in able if medians[place] <= limit or place == 0]
        _turns(runners, able, times, count=count)
    return times


def _turns(
    runners: Sequence[_Runner | str],
    places: Sequence[int],
    times: list[list[float]],
    *,
    count: int,
) -> None:
    """Run a step of every runner in `places`, one after another, `count` times."""
    for _ in range(count):
        for place in places:
            runner = runners[place]
            if isinstance(runner, _Runner):
                times[place].append(runner.step())


def _runners(plans: Sequence[Plan]) -> list[_Runner | str]:
    """Return a trainer of each plan, or the message with which it is refused."""
    shared = cache(lambda key: RankMesh.of(key.strategy, "cpu"))
    runners: list[_Runner | str] = []
    for plan in plans:
        try:
            runners.append(_Runner(plan, shared(_Layout(plan.strategy))))
        except InputError as error:
            runners.append(str(error))
    return runners


class _Layout:
    """A strategy as its mesh sees it: strategies of one layout share process groups."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        fields = strategy.model_dump(mode="json")
        self._key = tuple(sorted((k, v) for k, v in fields.items() if k.endswith("_degree")))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Layout) and other._key == self._key


class _Runner:
    """One plan's trainer and its batches."""

    def __init__(self, plan: Plan, mesh: RankMesh) -> None:
        graph, job = plan.model.resolved, plan.job.resolved
        session = Session(plan, device=torch.device("cpu"), mesh=mesh)
        self._trainer: Trainer = session.parallelize(
            lambda: Decoder(graph), next_token_loss, _adamw
        )
        batches = corpus_batches(
            global_batch_size=job.global_batch_size or 1, sequence_length=job.sequence_length or 1
        )
        (self._batch,) = session.shard(islice(batches, 1))

    def step(self) -> float:
        """Return the slowest rank's seconds of one step, all having begun together."""
        distributed.barrier()
        metrics = self._trainer.step(*self._batch)
        for parameter in self._trainer.model.parameters():
            parameter.grad = None
        slowest = torch.tensor(metrics.seconds, dtype=torch.float64)
        distributed.all_reduce(slowest, op=distributed.ReduceOp.MAX)
        return float(slowest)


def _adamw(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4)
