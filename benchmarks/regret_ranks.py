"""Ranks of the regret benchmark: every plan built, then steps of all of them in turn.

All plans of a model live side by side, so that whatever else the machine does meets them alike.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outing:
    """Where ranks find their plans and leave their answer, and how many rounds they run."""

    rank_count: int
    rounds: int
    plans_path: str
    answer_path: str
    store_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The median step of a plan, or why the executor refuses it."""

    seconds: float | None
    refusal: str | None = None


def measured_plans(
    plan: Plan, strategies: Sequence[Strategy], *, rank_count: int, rounds: int
) -> list[Measured]:
    """Return the median step of each strategy for the model and job of `plan`, in their order."""
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
            plans_path=str(folder / "plans.json"),
            answer_path=str(folder / "answer.json"),
            store_path=str(folder / "store"),
        )
        spawn(_rank, args=(outing,), nprocs=rank_count)  # type: ignore[no-untyped-call]
        answers = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    return [Measured(**answer) for answer in answers]


def _rank(rank: int, outing: Outing) -> None:
    die_with_launcher()
    torch.set_num_threads(1)
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
    runners = _runners(plans)
    times: list[list[float]] = [[] for _ in runners]
    for turn in range(outing.rounds + _WARM_UP_STEPS):
        for index, runner in enumerate(runners):
            seconds = runner.step() if isinstance(runner, _Runner) else 0.0
            if turn >= _WARM_UP_STEPS:
                times[index].append(seconds)
    answers: list[dict[str, Any]] = [
        {"seconds": statistics.median(spent)}
        if isinstance(runner, _Runner)
        else {"seconds": None, "refusal": runner}
        for runner, spent in zip(runners, times, strict=True)
    ]
    if rank == 0:
        Path(outing.answer_path).write_text(json.dumps(answers), encoding="utf-8")
    distributed.barrier()
    distributed.destroy_process_group()


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
