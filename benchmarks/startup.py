"""`python -m benchmarks.startup`: what a start takes, beside building the model whole on each rank.

Each rank of a plan draws or reads its own part of a Llama, and makes the optimizer. Beside it a
rank builds the whole by its class or by `from_pretrained`, as a script does before it hands a
model to any framework. Each start has gloo ranks of its own on this machine, in turn, several
times. Stated are medians of the slowest rank's seconds and of the largest growth of a rank's
private memory, and their ratios. With `--write` the table goes into docs/executor.md.

Private memory is what the system cannot take back (`RssAnon`), sampled; pages of mapped files are
the page cache's. What `from_pretrained` maps is written to once, as the first update does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from torch import distributed, nn
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.machine import machine, machine_line
from benchmarks.page import DOCS, put
from executor.cores import keep_to_own_cores
from executor.local_ranks import run_local_ranks
from executor.losses import next_token_loss
from executor.optimizers import adamw
from executor.rank_main import LEARNING_RATE, die_with_launcher
from executor.session import Session
from planner.importers.hugging_face.config_json import graph_from_huggingface
from planner.planning import plan
from planner.requests.references import read_cluster
from planner.requests.resolution import model_document
from planner.schema.job import DegreeLimit, Job, Limits, Precision
from planner.schema.plan import Plan
from planner.units import format_bytes

PAGE = DOCS / "executor.md"
KINDS = ("replicas", "zero3", "tensor")
SOURCES = ("drawn", "loaded")
_WHOLE = "whole"
_REPEATS = 3
_TIMEOUT = timedelta(minutes=5)
_SEQUENCE_LENGTH = 128
_BYTES_PER_KIB = 1024
_SAMPLE_SECONDS = 0.002
_FIELDS: dict[str, Any] = {
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 8,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "vocab_size": 16384,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "use_cache": False,
}
_adamw = partial(adamw, learning_rate=LEARNING_RATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Seconds of the slowest rank, and bytes by which the largest rank's private memory grew."""

    seconds: float
    peak_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A start under a plan, and the whole model's on as many ranks."""

    name: str
    rank_count: int
    planned: Start
    whole: Start

    @property
    def ratio(self) -> float:
        """Return the plan's seconds over the whole model's."""
        return self.planned.seconds / self.whole.seconds

    @property
    def memory_ratio(self) -> float:
        """Return the plan's growth of memory over the whole model's."""
        return self.planned.peak_bytes / self.whole.peak_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assignment:
    """What ranks start, and where the answer goes."""

    kind: str
    source: str
    rank_count: int
    folder: str


def main() -> int:
    """Print the table."""
    options = _options()
    facts = machine()
    print(machine_line(facts), flush=True)
    found = []
    with tempfile.TemporaryDirectory(prefix="meshwright-startup-") as folder:
        run_local_ranks(_write_weights, folder, rank_count=1, kind="cpu", field="startup")
        size_bytes = (Path(folder) / "model.safetensors").stat().st_size
        for source in options.sources:
            starts = _starts(source, options, folder)
            for kind in options.kinds:
                name = f"{kind}, {source}"
                found.append(
                    Measured(
                        name=name,
                        rank_count=options.ranks,
                        planned=starts[kind],
                        whole=starts[_WHOLE],
                    )
                )
                print(_row(found[-1]), flush=True)
    lines = list(_table(found, facts, size_bytes))
    print("\n".join(lines))
    if options.write:
        put("startup", lines, page=PAGE)
    return 0


def _starts(source: str, options: argparse.Namespace, folder: str) -> dict[str, Start]:
    """Return the medians of all kinds and of the whole build, which take turns."""
    kinds = (_WHOLE, *options.kinds)
    runs: dict[str, list[Start]] = {kind: [] for kind in kinds}
    for _ in range(options.repeats):
        for kind in kinds:
            assignment = _Assignment(
                kind=kind, source=source, rank_count=options.ranks, folder=folder
            )
            runs[kind].append(_measured(assignment))
    return {
        kind: Start(
            seconds=statistics.median(one.seconds for one in starts),
            peak_bytes=int(statistics.median(one.peak_bytes for one in starts)),
        )
        for kind, starts in runs.items()
    }


def _measured(assignment: _Assignment) -> Start:
    folder = Path(assignment.folder)
    if assignment.kind != _WHOLE:
        made = _plan(assignment.kind, assignment.rank_count)
        (folder / "plan.json").write_text(made.to_json(), encoding="utf-8")
    (folder / "store").unlink(missing_ok=True)
    run_local_ranks(
        _rank, assignment, rank_count=assignment.rank_count, kind="cpu", field="startup"
    )
    return Start(**json.loads((folder / "answer.json").read_text(encoding="utf-8")))


def _plan(kind: str, rank_count: int) -> Plan:
    """Return the plan that has one kind of parallelism over all ranks."""
    split = rank_count if kind == "tensor" else 1
    shared = rank_count // split
    fixed = DegreeLimit(min=1, max=1)
    job = Job(
        global_batch_size=rank_count,
        sequence_length=_SEQUENCE_LENGTH,
        precision=Precision.FP32,
        limits=Limits(
            tensor_parallel_degree=DegreeLimit(min=split, max=split),
            data_parallel_replicate_degree=fixed
            if kind == "zero3"
            else DegreeLimit(min=shared, max=shared),
            context_parallel_degree=fixed,
            pipeline_parallel_degree=fixed,
            zero_stages=(3,) if kind == "zero3" else (0,),
            offload=(),
        ),
    )
    graph = graph_from_huggingface(_configuration().to_dict(), name="startup")
    cluster = f"{rank_count}xcpu-gloo"
    answer = plan(model_document("startup", graph), read_cluster(cluster), job)
    if not isinstance(answer, Plan):
        raise TypeError(f"no plan of {kind} on {cluster}")
    return answer


def _configuration() -> LlamaConfig:
    return LlamaConfig(**_FIELDS)


def _build() -> nn.Module:
    return LlamaForCausalLM(_configuration())


def _write_weights(_rank: int, folder: str) -> None:
    """Write the model's folder, in a process of its own: this one must not have computed."""
    LlamaForCausalLM(_configuration()).save_pretrained(folder)


def _rank(rank: int, assignment: _Assignment) -> None:
    """Start once; rank 0 writes what the slowest and the largest rank took."""
    die_with_launcher()
    torch.set_num_threads(1)
    keep_to_own_cores(rank, assignment.rank_count)
    folder = Path(assignment.folder)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'store'}",
        rank=rank,
        world_size=assignment.rank_count,
        timeout=_TIMEOUT,
    )
    start = _whole_start if assignment.kind == _WHOLE else _planned_start
    seconds, peak_bytes = _taken(lambda: start(folder, assignment.source))
    largest = torch.tensor([seconds, peak_bytes], dtype=torch.float64)
    distributed.all_reduce(largest, op=distributed.ReduceOp.MAX)
    if rank == 0:
        answer = {"seconds": float(largest[0]), "peak_bytes": int(largest[1])}
        (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")
    distributed.barrier()
    distributed.destroy_process_group()


def _planned_start(folder: Path, source: str) -> object:
    session = Session(Plan.read(folder / "plan.json"), device=torch.device("cpu"))
    weights = folder if source == "loaded" else None
    return session.parallelize(_build, next_token_loss, _adamw, weights=weights)


def _whole_start(folder: Path, source: str) -> object:
    if source == "drawn":
        model = _build()
    else:
        model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
        for parameter in model.parameters():
            parameter.detach().add_(0.0)
    return model, _adamw(list(model.parameters()))


def _taken(start: Callable[[], object]) -> tuple[float, int]:
    """Return the seconds of a start, and by how many bytes private memory grew at most."""
    distributed.barrier()
    with _Peak() as peak:
        begun = time.perf_counter()
        kept = start()
        seconds = time.perf_counter() - begun
    del kept
    return seconds, peak.grown_bytes


class _Peak:
    """The largest private memory of this process inside a block, above that at its beginning."""

    def __init__(self) -> None:
        self._first = self._largest = _private_bytes()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    @property
    def grown_bytes(self) -> int:
        """Return by how much it grew."""
        return self._largest - self._first

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_given: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(_SAMPLE_SECONDS):
            self._largest = max(self._largest, _private_bytes())
        self._largest = max(self._largest, _private_bytes())


def _private_bytes() -> int:
    """Return this process's anonymous resident memory. Source: proc(5), `status`."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * _BYTES_PER_KIB
    raise LookupError("RssAnon")


def _table(found: Sequence[Measured], facts: dict[str, Any], size_bytes: int) -> Iterator[str]:
    yield (
        f"A model of {format_bytes(size_bytes)} in fp32, measured on {machine_line(facts)}, by "
        "`python -m benchmarks.startup --write`."
    )
    yield ""
    yield "| layout, values | ranks | plan | whole | time | plan | whole | peak memory |"
    yield "|---|---|---|---|---|---|---|---|"
    for one in found:
        yield _row(one)


def _row(one: Measured) -> str:
    planned, whole = one.planned, one.whole
    return (
        f"| {one.name} | {one.rank_count} | {planned.seconds:.2f} s | {whole.seconds:.2f} s | "
        f"{one.ratio:.2f} | {format_bytes(planned.peak_bytes)} | {format_bytes(whole.peak_bytes)} "
        f"| {one.memory_ratio:.2f} |"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--sources", nargs="+", choices=SOURCES, default=list(SOURCES))
    parser.add_argument("--repeats", type=int, default=_REPEATS)
    parser.add_argument("--write", action="store_true", help=f"into docs/{PAGE.name}")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
