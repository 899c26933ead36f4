"""`python -m benchmarks.overhead`: what the executor takes beside hand-written torch.

The same decoder, batch and optimizer are trained on gloo ranks of this machine by a plan, and by
what a script would write by hand: `DistributedDataParallel`, `fully_shard` of each block, and
torch's `Schedule1F1B`. Both live on the same ranks and take steps in turn, so that whatever else
the machine does meets both alike. Stated are medians of the slowest rank in 8 to 30 steps, their
ratio, and the ratio of peaks of live tensors in one step more. With `--write` the table goes into
docs/executor.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel

from benchmarks.machine import machine, machine_line
from benchmarks.page import DOCS, put
from executor.cores import keep_to_own_cores
from executor.data import corpus_batches
from executor.local_ranks import run_local_ranks
from executor.losses import next_token_loss
from executor.models.declaration import remove_part
from executor.models.decoder import Decoder
from executor.optimizers import adamw
from executor.rank_main import LEARNING_RATE, die_with_launcher
from executor.session import Session
from executor.telemetry import MemoryMeter
from executor.updates import state_tensors
from planner.planning import plan
from planner.requests.references import read_cluster
from planner.requests.resolution import model_document
from planner.schema.job import DegreeLimit, Job, Limits, Precision
from planner.schema.model import (
    Block,
    BlockRun,
    DenseFeedForward,
    GroupedQueryAttention,
    ModelGraph,
)
from planner.schema.plan import Plan
from planner.schema.strategy import ActivationCheckpointing, PipelineSchedule

PAGE = DOCS / "executor.md"
RATIO_BAR, MEMORY_BAR, BAR_SECONDS = 1.03, 1.02, 0.02
_STEPS, _LEAST_STEPS, _WARM_UP = 30, 8, 3
_STEPS_SECONDS = 10.0  # what the steps of one may take beyond the least
_TIMEOUT = timedelta(minutes=5)
_MICRO_BATCHES = 4
_SIZES = {"tiny": (64, 2, 64), "small": (256, 4, 128), "medium": (512, 6, 256)}
_KINDS = ("ddp", "fully_shard", "1f1b")
_adamw = partial(adamw, learning_rate=LEARNING_RATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Median seconds of a step and peak bytes, the executor's and the hand-written."""

    name: str
    rank_count: int
    seconds: float
    plain_seconds: float
    peak_bytes: int
    plain_peak_bytes: int

    @property
    def ratio(self) -> float:
        """Return the executor's step over the hand-written one."""
        return self.seconds / self.plain_seconds

    @property
    def memory_ratio(self) -> float:
        """Return the executor's peak over the hand-written one."""
        return self.peak_bytes / self.plain_peak_bytes


class Training(Protocol):
    """Something that trains a step on this rank."""

    def step(self) -> None:
        """Train one step."""

    def peak_bytes(self) -> int:
        """Train one more, and return the peak of live tensors."""


class Planned:
    """The executor's."""

    def __init__(self, plan: Plan) -> None:
        session = Session(plan, device=torch.device("cpu"))
        graph = plan.model.resolved
        self._trainer = session.parallelize(lambda: Decoder(graph), next_token_loss, _adamw)
        (self._batch,) = session.shard(islice(_batches(plan), 1))

    def step(self) -> None:
        """Train one step."""
        self._trainer.step(*self._batch)

    def peak_bytes(self) -> int:
        """Train one more, and return the peak of live tensors."""
        return self._trainer.metered_step(*self._batch).peak_memory_bytes or 0


class Plain:
    """What a script writes by hand."""

    def __init__(self, kind: str, plan: Plan) -> None:
        inputs, targets = next(_batches(plan))
        rank, ranks = distributed.get_rank(), distributed.get_world_size()
        self._model = Decoder(plan.model.resolved)
        if kind == "1f1b":
            self._run = _pipeline(self._model, inputs, targets)
        else:
            rows = len(inputs) // ranks
            own = slice(rank * rows, (rank + 1) * rows)
            trained: nn.Module = self._model
            if kind == "ddp":
                trained = DistributedDataParallel(self._model)
            else:
                # the groups that the plan shards by, and torchtitan does
                ends: list[nn.Module] = [self._model.norm, self._model.head]
                blocks = self._model.blocks.values()
                parts: list[nn.Module | list[nn.Module]] = [self._model.embedding, *blocks, ends]
                for part in parts:
                    fully_shard(part)
                fully_shard(self._model)
            self._run = _whole(trained, inputs[own], targets[own])
        self._optimizer = _adamw(list(self._model.parameters()))

    def step(self) -> None:
        """Train one step."""
        self._optimizer.zero_grad()
        self._run()
        self._optimizer.step()

    def peak_bytes(self) -> int:
        """Train one more, and return the peak of live tensors."""
        meter = MemoryMeter(torch.device("cpu"))
        held = [*self._model.parameters(), *state_tensors(self._optimizer)]
        with meter.live_tensors(held):
            self.step()
        return meter.peak_bytes() or 0


def _whole(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> Callable[[], object]:
    """Return the forward and backward of one batch."""

    def run() -> object:
        loss = next_token_loss(model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    return run


def _pipeline(model: Decoder, inputs: torch.Tensor, targets: torch.Tensor) -> Callable[[], object]:
    """Cut `model` to this rank's blocks, and return torch's schedule of one batch."""
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    per_rank = len(model.blocks) // ranks
    for index in range(len(model.blocks)):
        if index // per_rank != rank:
            del model.blocks[str(index)]
    for path in (["embedding"] if rank > 0 else []) + (
        ["norm", "head"] if rank < ranks - 1 else []
    ):
        remove_part(model, path)
    stage = PipelineStage(model, rank, ranks, torch.device("cpu"))
    schedule = Schedule1F1B(stage, _MICRO_BATCHES, loss_fn=next_token_loss)

    def run() -> object:
        losses: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(inputs)
        elif rank == ranks - 1:
            schedule.step(target=targets, losses=losses)
        else:
            schedule.step()
        return sum(loss.item() for loss in losses)

    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assignment:
    """What ranks compare, and where the answer goes."""

    kind: str
    rank_count: int
    plan_path: str
    answer_path: str
    store_path: str


def main() -> int:
    """Print the table; return 1 where a bar is missed."""
    options = _options()
    facts = machine()
    print(machine_line(facts), flush=True)
    found = []
    for rank_count in options.ranks:
        for size in options.sizes:
            for kind in options.kinds:
                found.append(measured(kind, size, rank_count))
                print(_row(found[-1]), flush=True)
    lines = list(_table(found, facts))
    print("\n".join(lines))
    if options.write:
        put("overhead", lines, page=PAGE)
    return 0 if meets_bars(found) else 1


def measured(kind: str, size: str, rank_count: int) -> Measured:
    """Return both, measured on ranks of their own."""
    with tempfile.TemporaryDirectory(prefix="meshwright-overhead-") as directory:
        folder = Path(directory)
        assignment = _Assignment(
            kind=kind,
            rank_count=rank_count,
            plan_path=str(folder / "plan.json"),
            answer_path=str(folder / "answer.json"),
            store_path=str(folder / "store"),
        )
        Path(assignment.plan_path).write_text(
            _plan(kind, size, rank_count).to_json(), encoding="utf-8"
        )
        run_local_ranks(_rank, assignment, rank_count=rank_count, kind="cpu", field="overhead")
        fields = json.loads(Path(assignment.answer_path).read_text(encoding="utf-8"))
    return Measured(name=f"{kind}, {size}", rank_count=rank_count, **fields)


def meets_bars(found: Sequence[Measured]) -> bool:
    """Return whether the median ratios of peaks, and of steps from 20 ms on, are within bars."""
    step, peak = _medians(found)
    return (step is None or step <= RATIO_BAR) and peak <= MEMORY_BAR


def _medians(found: Sequence[Measured]) -> tuple[float | None, float]:
    """Return the median ratios of steps that are long enough, if any, and of peaks."""
    steps = [one.ratio for one in found if one.plain_seconds >= BAR_SECONDS]
    peaks = [one.memory_ratio for one in found]
    return statistics.median(steps) if steps else None, statistics.median(peaks)


def _plan(kind: str, size: str, rank_count: int) -> Plan:
    """Return the plan that does what is written by hand."""
    hidden, blocks, length = _SIZES[size]
    block = Block(
        attention=GroupedQueryAttention(
            head_count=4, key_value_head_count=4, head_size=hidden // 4
        ),
        feed_forward=DenseFeedForward(ffn_size=3 * hidden),
    )
    count = blocks if blocks % rank_count == 0 else rank_count * -(-blocks // rank_count)
    graph = ModelGraph(
        name=size,
        architecture="llama",
        hidden_size=hidden,
        vocabulary_size=512,
        maximum_sequence_length=length,
        runs=(BlockRun(block=block, block_count=count),),
    )
    stages = rank_count if kind == "1f1b" else 1
    fixed = DegreeLimit(min=1, max=1)
    job = Job(
        global_batch_size=4 * rank_count if kind != "1f1b" else 2 * _MICRO_BATCHES,
        sequence_length=length,
        precision=Precision.FP32,
        gradient_clipping=False,
        limits=Limits(
            tensor_parallel_degree=fixed,
            context_parallel_degree=fixed,
            pipeline_parallel_degree=DegreeLimit(min=stages, max=stages),
            data_parallel_replicate_degree=fixed,
            micro_batch_size=DegreeLimit(min=2, max=2)
            if kind == "1f1b"
            else DegreeLimit(min=4, max=4),
            zero_stages=(3,) if kind == "fully_shard" else (0,),
            activation_checkpointing=(ActivationCheckpointing.NONE,),
            offload=(),
            pipeline_schedules=(PipelineSchedule.ONE_F_ONE_B,),
        ),
    )
    cluster = f"{rank_count}xcpu-gloo"
    answer = plan(model_document(size, graph), read_cluster(cluster), job)
    if not isinstance(answer, Plan):
        raise TypeError(f"no plan of {kind}, {size} on {cluster}")
    return answer


def _batches(plan: Plan) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    job = plan.job.resolved
    return corpus_batches(
        global_batch_size=job.global_batch_size or 1, sequence_length=job.sequence_length or 1
    )


def _rank(rank: int, assignment: _Assignment) -> None:
    """Take steps of both in turn; rank 0 writes what the slowest rank took."""
    die_with_launcher()
    torch.set_num_threads(1)
    keep_to_own_cores(rank, assignment.rank_count)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{assignment.store_path}",
        rank=rank,
        world_size=assignment.rank_count,
        timeout=_TIMEOUT,
    )
    plan = Plan.read(Path(assignment.plan_path))
    both: tuple[Training, Training] = (Planned(plan), Plain(assignment.kind, plan))
    times: tuple[list[float], list[float]] = ([], [])
    warm = max(_seconds(one) for _ in range(_WARM_UP) for one in both)
    for index in range(min(_STEPS, max(_LEAST_STEPS, int(_STEPS_SECONDS / warm)))):
        for place in (0, 1) if index % 2 else (1, 0):
            times[place].append(_seconds(both[place]))
    peaks = [_largest(float(one.peak_bytes())) for one in both]
    if rank == 0:
        answer: dict[str, Any] = {
            "seconds": statistics.median(times[0]),
            "plain_seconds": statistics.median(times[1]),
            "peak_bytes": int(peaks[0]),
            "plain_peak_bytes": int(peaks[1]),
        }
        Path(assignment.answer_path).write_text(json.dumps(answer), encoding="utf-8")
    distributed.barrier()
    distributed.destroy_process_group()


def _seconds(training: Training) -> float:
    """Return the slowest rank's seconds of a step, all having begun together."""
    distributed.barrier()
    start = time.perf_counter()
    training.step()
    return _largest(time.perf_counter() - start)


def _largest(value: float) -> float:
    largest = torch.tensor(value, dtype=torch.float64)
    distributed.all_reduce(largest, op=distributed.ReduceOp.MAX)
    return float(largest)


def _table(found: Sequence[Measured], facts: dict[str, Any]) -> Iterator[str]:
    yield f"Measured on {machine_line(facts)}, by `python -m benchmarks.overhead --write`."
    yield ""
    yield "| layout, model | ranks | executor | hand-written | step | peak memory |"
    yield "|---|---|---|---|---|---|"
    for one in found:
        yield _row(one)
    yield ""
    step, peak = _medians(found)
    if step is not None:
        yield (
            f"Median of steps that take {BAR_SECONDS * 1e3:.0f} ms by hand, and more: {step:.3f} "
            f"(aim {RATIO_BAR});"
        )
    yield f"of peaks: {peak:.3f} (aim {MEMORY_BAR})."


def _row(one: Measured) -> str:
    return (
        f"| {one.name} | {one.rank_count} | {one.seconds * 1e3:.1f} ms | "
        f"{one.plain_seconds * 1e3:.1f} ms | {one.ratio:.3f} | {one.memory_ratio:.3f} |"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--sizes", nargs="+", choices=list(_SIZES), default=list(_SIZES))
    parser.add_argument("--kinds", nargs="+", choices=_KINDS, default=list(_KINDS))
    parser.add_argument("--write", action="store_true", help=f"into docs/{PAGE.name}")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
