"""Trials: a few steps of several plans, in turn, on the same ranks of this machine.

    python -m executor.trials PLANS.json --out TRIALS.json [--device cpu|cuda]
        [--rounds LEAST:MOST] [--final-rounds N] [--seconds S]

Every plan is built, then a step of each is run in a round, so that whatever else the machine does
meets all alike. Rounds go on until three agree. Those plans that come close to the fastest, and the
first, run further ones where these are asked for: the least of many medians of few steps would be a
lucky one. What is far off needs few steps to be told from the rest.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from itertools import islice
from pathlib import Path

from planner.extras import exit_without_extras

if __name__ == "__main__":
    exit_without_extras("executor.trials")

import torch
from torch import distributed

from executor.cores import keep_to_own_cores
from executor.data import corpus_batches
from executor.gradients import USUAL_NORM
from executor.local_ranks import run_local_ranks
from executor.losses import next_token_loss
from executor.mesh import RankMesh
from executor.models.decoder import Decoder
from executor.optimizers import adamw
from executor.rank_main import die_with_launcher
from executor.session import Session
from executor.trainer import Trainer
from planner.errors import InputError, MeshwrightError
from planner.schema.plan import Plan
from planner.schema.strategy import Strategy
from planner.schema.trial import Trial, TrialPlans, Trials, rounds_agree

_TIMEOUT = timedelta(minutes=5)
_WARM_UP_STEPS = 1
_FEWEST_ROUNDS = 2  # that show how much rounds differ
# Of the least median: who runs heats, and who the final rounds, beyond the worst regret's bar.
_HEAT_RATIO, _FINAL_RATIO = 1.6, 1.25
_HEATS = 2
_LEARNING_RATE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """How many rounds are run of all plans, and how many of those close to the fastest.

    Of all there are at most `most`, and fewer once `least` are done and the last agree, or once
    `seconds` are over: then two are enough.
    """

    least: int
    most: int
    final: int = 0
    seconds: float = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assignment:
    """Where ranks find their plans and leave their answer."""

    rank_count: int
    kind: str
    rounds: Rounds
    plans_path: str
    answer_path: str
    store_path: str


def main(arguments: Sequence[str]) -> int:
    """Run and write the trials; return the exit status."""
    parsed = _parse(arguments)
    least, _, most = parsed.rounds.partition(":")
    rounds = Rounds(
        least=int(least), most=int(most or least), final=parsed.final_rounds, seconds=parsed.seconds
    )
    try:
        plans = TrialPlans.read(parsed.plans).plans
        trials = measured_trials(plans, rounds=rounds, kind=parsed.device)
    except MeshwrightError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - this is a command
        return 1
    parsed.out.write_text(Trials(trials=trials).to_json(), encoding="utf-8")
    return 0


def measured_trials(
    plans: Sequence[Plan], *, rounds: Rounds, kind: str = "cpu"
) -> tuple[Trial, ...]:
    """Return the steps of each plan, in their order; all have as many ranks.

    The first of them is in the final rounds however slow it is.

    Raises:
        LaunchError: if a rank fails.
    """
    rank_count = plans[0].strategy.world_size
    with tempfile.TemporaryDirectory(prefix="meshwright-trials-") as directory:
        folder = Path(directory)
        assignment = _Assignment(
            rank_count=rank_count,
            kind=kind,
            rounds=rounds,
            plans_path=str(folder / "plans.json"),
            answer_path=str(folder / "answer.json"),
            store_path=str(folder / "store"),
        )
        Path(assignment.plans_path).write_text(
            TrialPlans(plans=tuple(plans)).to_json(), encoding="utf-8"
        )
        run_local_ranks(_rank, assignment, rank_count=rank_count, kind=kind, field="trials")
        return Trials.read(Path(assignment.answer_path)).trials


def _rank(rank: int, assignment: _Assignment) -> None:
    die_with_launcher()
    kind = assignment.kind
    device = torch.device(kind, rank) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
        keep_to_own_cores(rank, assignment.rank_count)
    distributed.init_process_group(
        "nccl" if kind == "cuda" else "gloo",
        init_method=f"file://{assignment.store_path}",
        rank=rank,
        world_size=assignment.rank_count,
        timeout=_TIMEOUT,
        device_id=device if kind == "cuda" else None,
    )
    plans = TrialPlans.read(Path(assignment.plans_path)).plans
    runners = _runners(plans, device)
    times = _raced(runners, assignment.rounds)
    if rank == 0:
        trials = tuple(
            Trial(
                strategy=plan.strategy,
                step_seconds=tuple(spent),
                refusal=None if isinstance(runner, _Runner) else runner,
            )
            for plan, runner, spent in zip(plans, runners, times, strict=True)
        )
        Path(assignment.answer_path).write_text(Trials(trials=trials).to_json(), encoding="utf-8")
    distributed.barrier()
    distributed.destroy_process_group()


def _raced(runners: Sequence[_Runner | str], rounds: Rounds) -> list[list[float]]:
    """Return the seconds of each runner's steps; ranks agree on them, and so on who is close."""
    times: list[list[float]] = [[] for _ in runners]
    able = [place for place, runner in enumerate(runners) if isinstance(runner, _Runner)]
    if not able:
        return times
    _turns(runners, able, [[] for _ in runners], count=_WARM_UP_STEPS)
    for done in range(1, rounds.most + 1):
        _turns(runners, able, times, count=1)
        _say(f"[{done}/{rounds.most}] a step of {len(able)} plans")
        spent = sum(sum(seconds) for seconds in times)
        if done >= rounds.least and rounds_agree([times[place] for place in able]):
            break
        if done >= _FEWEST_ROUNDS and spent > rounds.seconds:
            break
    for ratio, count in ((_HEAT_RATIO, _HEATS), (_FINAL_RATIO, rounds.final)):
        if rounds.final == 0:
            break
        medians = {place: statistics.median(times[place]) for place in able}
        limit = ratio * min(medians.values())
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


def _say(line: str) -> None:
    if distributed.get_rank() == 0:
        print(line, file=sys.stderr, flush=True)  # noqa: T201 - the progress of a command


def _runners(plans: Sequence[Plan], device: torch.device) -> list[_Runner | str]:
    """Return a trainer of each plan, or the message with which it is refused."""
    shared = cache(lambda key: RankMesh.of(key.strategy, device.type))
    runners: list[_Runner | str] = []
    for plan in plans:
        try:
            runners.append(_Runner(plan, shared(_Layout(plan.strategy)), device))
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

    def __init__(self, plan: Plan, mesh: RankMesh, device: torch.device) -> None:
        graph, job = plan.model.resolved, plan.job.resolved
        self._device = device
        session = Session(plan, device=device, mesh=mesh)
        self._trainer: Trainer = session.parallelize(
            lambda: Decoder(graph),
            next_token_loss,
            partial(adamw, learning_rate=_LEARNING_RATE),
            max_gradient_norm=USUAL_NORM if job.prices_clipping else None,
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
        slowest = torch.tensor(metrics.seconds, dtype=torch.float64, device=self._device)
        distributed.all_reduce(slowest, op=distributed.ReduceOp.MAX)
        return float(slowest)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m executor.trials", description=__doc__)
    parser.add_argument("plans", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", metavar="LEAST:MOST", default="4:12")
    parser.add_argument("--final-rounds", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
