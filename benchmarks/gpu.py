"""`python -m benchmarks.gpu`: steps and peaks of one GPU beside what is predicted for it.

    python -m benchmarks.gpu --out rows.jsonl [--cases NAME ...] [--cluster CLUSTER] [--steps 6]
        [--sustain SECONDS] [--caps RATIO ...]
    python -m benchmarks.gpu --from rows.jsonl [--cluster CLUSTER ...] [--write]

The executor trains each case of `benchmarks.gpu_cases` on one rank, one after another in one
process, on random tokens; first values are a few drawn tiles again and again, which no step's time
depends on. A row has the median step, what torch's allocator had at most, and the kernels that took
most of one step more. Where a script of a few lines does the same under autocast, its step stands
beside. `--sustain` goes on with the first case, and notes clock and power; `--caps` finds the least
memory, over the peak of live tensors, with which a case gets along. A case for which there is no
memory is a row too.

`--from` predicts such rows with the cost model as it is now, on the device that they name and on
each further `--cluster`, as `meshwright profile` writes them; `--write` puts the table into
docs/gpu.md, where the file's name marks its place.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu_cases import GpuCase, gpu_cases
from benchmarks.page import DOCS, put
from executor.local_ranks import run_local_ranks
from executor.losses import next_token_loss
from executor.models import first_values
from executor.models.declaration import ModelDeclaration
from executor.models.decoder import Decoder
from executor.optimizers import adamw
from executor.rank_main import die_with_launcher
from executor.session import Session
from executor.trainer import Trainer
from planner.planning import estimate, plan
from planner.requests.references import read_cluster
from planner.requests.resolution import model_document
from planner.schema.job import Job, Optimizer
from planner.schema.plan import Estimate, Plan, Prediction, ResolvedCluster
from planner.units import GIB

PAGE = DOCS / "gpu.md"
WARM_UP_STEPS = 2
SHOWN_KERNELS = 14
_CLUSTERS = {"H100": "1x1xh100-sxm5-80gb", "H200": "1x1xh200-sxm5-141gb"}


class _Tiled(Decoder):
    """The reference decoder, whose first values are quickly there."""

    def declaration(self) -> ModelDeclaration:
        """Return the decoder's own, but for first values."""
        return replace(super().declaration(), initial_value=_tile)


def _tile(name: str, shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    if name.endswith("norm.weight"):
        return torch.ones(shape)
    return _drawn(shape, generator.initial_seed() % 4)


@cache
def _drawn(shape: torch.Size, seed: int) -> torch.Tensor:
    return torch.empty(shape).normal_(std=0.02, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assignment:
    """What the rank runs, for how many steps, and where rows go."""

    names: tuple[str, ...]
    cluster: str
    steps: int
    sustain: float
    caps: tuple[float, ...]
    kind: str
    store_path: str
    out: str


def main() -> int:
    """Run or read, and print the table."""
    options = _options()
    if options.out is not None:
        os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")  # as launched
        names = tuple(options.cases or (case.name for case in gpu_cases()))
        with tempfile.TemporaryDirectory(prefix="meshwright-gpu-") as directory:
            assignment = _Assignment(
                names=names,
                cluster=next(iter(options.cluster), None) or _cluster_here(),
                steps=options.steps,
                sustain=options.sustain,
                caps=tuple(options.caps),
                kind=options.device,
                store_path=str(Path(directory) / "store"),
                out=str(options.out),
            )
            run_local_ranks(_rank, assignment, rank_count=1, kind=options.device, field="gpu")
    rows = [json.loads(line) for line in (options.out or options.rows).read_text().splitlines()]
    lines = list(table(rows, options.cluster if options.out is None else ()))
    print("\n".join(lines))
    if options.write:
        put((options.out or options.rows).stem, lines, page=PAGE)
    return 0


def _cluster_here() -> str:
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    found = [cluster for word, cluster in _CLUSTERS.items() if word in name]
    if not found:
        raise SystemExit(f"--cluster: no profile is known of {name}: give a cluster of one of them")
    return found[0]


def _rank(rank: int, assignment: _Assignment) -> None:
    die_with_launcher()
    device = torch.device(assignment.kind, 0) if assignment.kind == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=f"file://{assignment.store_path}",
        rank=rank,
        world_size=1,
        device_id=device if device.type == "cuda" else None,
    )
    first_values._TILE_WIDTH = 4096  # noqa: SLF001 - few large tiles are sooner there than many
    wanted = {case.name: case for case in gpu_cases()}
    cluster = read_cluster(assignment.cluster)
    with Path(assignment.out).open("a", encoding="utf-8") as out:
        for name in assignment.names:
            row = measured(
                wanted[name],
                cluster,
                device=device,
                steps=assignment.steps,
                sustain=assignment.sustain if name == assignment.names[0] else 0.0,
                caps=assignment.caps,
            )
            out.write(json.dumps(row) + "\n")
            out.flush()
    distributed.destroy_process_group()


def measured(
    case: GpuCase,
    cluster: ResolvedCluster,
    *,
    device: torch.device,
    steps: int,
    sustain: float = 0.0,
    caps: Sequence[float] = (),
) -> dict[str, Any]:
    """Return the row of one case, trained on this process's device."""
    begun = time.perf_counter()
    planned = planned_case(case, cluster)
    row: dict[str, Any] = {
        "id": case.name,
        "cluster": cluster.given,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": str(torch.__version__),
        "measured": datetime.now(UTC).date().isoformat(),
        "outcome": "ok",
    }
    if case.is_plain and device.type == "cuda":
        _clear(device)
        row["plain_step_s"] = plain_seconds(case, planned, device=device, steps=steps)
    _clear(device)
    held = torch.cuda.memory_allocated() if device.type == "cuda" else 0
    try:
        row |= _trained(case, planned, device=device, steps=steps, sustain=sustain)
    except torch.OutOfMemoryError as error:
        row |= {"outcome": "oom", "notes": str(error).split(".")[0]}
    except Exception as error:  # noqa: BLE001 - the other cases are measured all the same
        row |= {"outcome": "failed", "notes": f"{type(error).__name__}: {error}"}
    if row["outcome"] == "ok" and caps:
        row["least_cap_ratio"] = _least_cap(case, planned, row, device=device, caps=caps)
    row["held_before_bytes"] = held
    row["case_seconds"] = time.perf_counter() - begun
    print(_said(row), file=sys.stderr, flush=True)
    return row


def planned_case(case: GpuCase, cluster: ResolvedCluster) -> Plan:
    """Return the case's strategy as a plan, with the prediction of the cost model as it is now."""
    priced = priced_case(case, cluster)
    least = min((one.graph for one in gpu_cases()), key=lambda graph: graph.hidden_size)
    job = Job(global_batch_size=1, sequence_length=16)
    small = plan(model_document(least.name, least), cluster, job)
    assert isinstance(small, Plan)
    same = ("model", "cluster", "job", "strategy", "prediction")
    return small.model_copy(update={name: getattr(priced, name) for name in same})


def priced_case(case: GpuCase, cluster: ResolvedCluster) -> Estimate:
    """Return what is predicted for a case."""
    model = model_document(case.graph.name, case.graph)
    return estimate(model, cluster, case.job_document(), case.strategy_document())


def _trained(
    case: GpuCase, planned: Plan, *, device: torch.device, steps: int, sustain: float
) -> dict[str, Any]:
    session = Session(planned, device=device)
    trainer = session.parallelize(
        lambda: _Tiled(case.graph), next_token_loss, _optimizer_of(planned.job.resolved)
    )
    batches = session.shard(_batches(planned.job.resolved))
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for _ in range(WARM_UP_STEPS + steps):
        trainer.step(*next(batches))
    timed = [metrics.seconds for metrics in trainer.history[WARM_UP_STEPS:]]
    return {
        "step_time_s": statistics.median(timed),
        "steps_s": timed,
        "losses": [metrics.loss for metrics in trainer.history],
        "differences": session.report().differences_from_plan,
        **_memory(trainer, device),
        "kernels": _kernels(trainer, next(batches), device),
        "sustained": _sustained(trainer, batches, seconds=sustain),
    }


def _least_cap(
    case: GpuCase,
    planned: Plan,
    row: dict[str, Any],
    *,
    device: torch.device,
    caps: Sequence[float],
) -> float | None:
    """Return the first of `caps`, in peaks of live tensors, within which the allocator gets along.

    What it needs beyond 1 is lost to holes between tensors, whatever it reserves where it may.
    """
    _, total = torch.cuda.mem_get_info()
    found = None
    for cap in caps:
        _clear(device)
        torch.cuda.set_per_process_memory_fraction(cap * row["peak_mem_gib"] * GIB / total)
        try:
            _trained(case, planned, device=device, steps=1, sustain=0.0)
        except torch.OutOfMemoryError:
            continue
        found = cap
        break
    torch.cuda.set_per_process_memory_fraction(1.0)
    return found


def plain_seconds(case: GpuCase, planned: Plan, *, device: torch.device, steps: int) -> float:
    """Return the median step of the same decoder as a script trains it by hand, under autocast."""
    with device:
        model = Decoder(case.graph)
    optimizer = _optimizer_of(planned.job.resolved)(list(model.parameters()))
    size, seconds = planned.strategy.micro_batch_size, []
    for tokens, targets in islice(_batches(planned.job.resolved), WARM_UP_STEPS + steps):
        begun = time.perf_counter()
        optimizer.zero_grad()
        parts = zip(torch.split(tokens, size), torch.split(targets, size), strict=True)
        for inputs, labels in parts:
            with torch.autocast(device.type, dtype=torch.bfloat16):
                logits = model(inputs.to(device))
            loss = next_token_loss(logits, labels.to(device)) / case.micro_batch_count
            loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds[WARM_UP_STEPS:])


def _sustained(trainer: Trainer, batches: Iterator[Any], *, seconds: float) -> dict[str, Any]:
    """Return steps of so many seconds more, with the clock and power of the device at each."""
    found: dict[str, list[float]] = {"steps_s": [], "sm_mhz": [], "watts": []}
    begun = time.perf_counter()
    while seconds > 0 and time.perf_counter() - begun < seconds:
        found["steps_s"].append(trainer.step(*next(batches)).seconds)
        found["sm_mhz"].append(torch.cuda.clock_rate())
        found["watts"].append(torch.cuda.power_draw() / 1e3)
    return found if seconds > 0 else {}


def _memory(trainer: Trainer, device: torch.device) -> dict[str, Any]:
    if device.type != "cuda":
        return {}
    free, total = torch.cuda.mem_get_info()
    return {
        "peak_mem_gib": (trainer.peak_memory_bytes() or 0) / GIB,
        "mem_class": "torch_allocated",
        "reserved_gib": torch.cuda.max_memory_reserved() / GIB,
        "device_used_gib": (total - free) / GIB,
        "parameter_gib": trainer.parameter_bytes() / GIB,
    }


def _kernels(trainer: Trainer, batch: Any, device: torch.device) -> dict[str, Any]:
    """Return the seconds of the longest kernels in one step, those of all, and the host's."""
    if device.type != "cuda":
        return {}
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as recorded:
        metrics = trainer.step(*batch)
    found = [item for item in recorded.key_averages() if item.self_device_time_total > 0]
    found.sort(key=lambda item: -item.self_device_time_total)
    return {
        "step_seconds": metrics.seconds,
        "busy_seconds": sum(item.self_device_time_total for item in found) / 1e6,
        "count": sum(item.count for item in found),
        "longest": [
            [item.key[:110], item.count, item.self_device_time_total / 1e6]
            for item in found[:SHOWN_KERNELS]
        ],
    }


def _optimizer_of(job: Job) -> Any:
    def made(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        if job.optimizer is Optimizer.SGD:
            return torch.optim.SGD(parameters, lr=1e-4, momentum=0.9)
        return adamw(parameters, learning_rate=1e-4, foreach=job.foreach_optimizer)

    return made


def _batches(job: Job) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    shape = (job.global_batch_size or 1, job.sequence_length or 1)
    while True:
        tokens = torch.randint(0, 32000, shape, generator=generator)
        yield tokens, tokens.roll(-1, dims=1)


def _clear(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def table(rows: Sequence[dict[str, Any]], clusters: Sequence[str]) -> Iterator[str]:
    """Yield the table of rows: measured, and over that predicted on each cluster, its own first."""
    titles = ("as shipped", *(f"as {Path(path).stem}" for path in clusters))
    heads = [f"step {title} | peak {title}" for title in titles]
    yield f"| case | step, ms | by hand | peak, GiB | {' | '.join(heads)} |"
    yield f"|---|---|---|---|{'---|---|' * len(titles)}"
    known = {case.name: case for case in gpu_cases()}
    errors: list[list[list[float]]] = [[[], []] for _ in titles]
    for row in rows:
        places = [read_cluster(given) for given in (row["cluster"], *clusters)]
        priced = [priced_case(known[row["id"]], place).prediction for place in places]
        if row["outcome"] != "ok":
            said = [f"{one.step_seconds.p50 * 1e3:.0f} ms | {_gib(one):.1f} GiB" for one in priced]
            yield f"| {row['id']} | {row['outcome']} | | | {' | '.join(said)} |"
            continue
        step, peak = row["step_time_s"], row.get("peak_mem_gib", math.nan)  # of CUDA alone
        ratios = [(one.step_seconds.p50 / step, _gib(one) / peak) for one in priced]
        for place, pair in enumerate(ratios):
            for kind, ratio in enumerate(pair):
                errors[place][kind].append(abs(ratio - 1.0))
        by_hand = f"{row['plain_step_s'] * 1e3:.0f}" if "plain_step_s" in row else ""
        shown = " | ".join(f"{first:.2f} | {second:.2f}" for first, second in ratios)
        yield f"| {row['id']} | {step * 1e3:.0f} | {by_hand} | {peak:.2f} | {shown} |"
    means = [f"{statistics.fmean(one):.1%}" for pair in errors for one in pair]
    middles = [f"{statistics.median(one):.1%}" for pair in errors for one in pair]
    yield f"| mean error | | | | {' | '.join(means)} |"
    yield f"| median error | | | | {' | '.join(middles)} |"


def _gib(prediction: Prediction) -> float:
    """Return the predicted peak of tensors."""
    (stage,) = prediction.stages
    return (stage.peak_memory_bytes - stage.memory_bytes.runtime) / GIB


def _said(row: dict[str, Any]) -> str:
    step = row.get("step_time_s", 0.0) * 1e3
    return (
        f"{row['id']}: {row['outcome']} {step:.1f} ms, {row.get('peak_mem_gib', 0.0):.2f} GiB "
        f"({row['case_seconds']:.0f} s) cap {row.get('least_cap_ratio')} {row.get('notes', '')} "
        f"{row.get('differences', '')}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    rows = parser.add_mutually_exclusive_group(required=True)
    rows.add_argument("--out", type=Path, metavar="ROWS", help="measure, and add rows there")
    rows.add_argument("--from", dest="rows", type=Path, metavar="ROWS", help="measure nothing")
    parser.add_argument("--cases", nargs="*", help="of benchmarks.gpu_cases; default: all")
    parser.add_argument("--cluster", nargs="*", default=[], help="of one GPU; default: this device")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", type=int, default=6, help="timed steps of each case")
    parser.add_argument("--sustain", type=float, default=0.0, help="seconds more of the first")
    parser.add_argument(
        "--caps", nargs="*", type=float, default=[], help="of memory, over each case's live peak"
    )
    parser.add_argument("--write", action="store_true", help="into docs/gpu.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
