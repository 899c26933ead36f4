"""Measure one gloo rank among several on this machine's CPU, as a device profile's fragment.

    python -m benchmarks.cpu_profile [--ranks 4]

All ranks work at once, one thread each, as they do in a training step. Every figure is the median
over repetitions of the slowest rank; printed beside it is the load of the machine, without which
the figures mean little.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import distributed
from torch.multiprocessing.spawn import spawn
from torch.nn import functional

REPEAT_COUNT = 15
TOKENS = 1024
INNER_SIZES = (64, 256, 704, 2048)
OUTER_SIZE = 704
SEQUENCE_LENGTHS = (128, 256, 512)
HEAD_COUNT, HEAD_SIZE = 8, 32
ELEMENT_COUNT = 2**21
MESSAGE_BYTES = (2**10, 2**14, 2**17, 2**20, 2**22)
SMALL_OPERATOR_COUNT = 200

Figures = dict[str, Any]


def main() -> None:
    """Print what was measured as YAML."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    rank_count = parser.parse_args().ranks
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as directory:
        store, answer = Path(directory) / "store", Path(directory) / "figures.yaml"
        spawn(  # type: ignore[no-untyped-call]
            _rank, args=(rank_count, str(store), str(answer)), nprocs=rank_count
        )
        figures = yaml.safe_load(answer.read_text())
    conditions = {
        "rank_count": rank_count,
        "core_count": os.cpu_count(),
        "load_before": round(load_before, 2),
        "load_after": round(os.getloadavg()[0], 2),
        "torch": str(torch.__version__),
    }
    print(yaml.safe_dump({"conditions": conditions, **figures}, sort_keys=False), end="")


def _rank(rank: int, rank_count: int, store: str, answer: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=rank_count
    )
    figures: Figures = {
        "gemm_gflop_per_second": {size: _gemm_rate(size) for size in INNER_SIZES},
        "attention_gflop_per_second": {
            length: dict(zip(("forward", "backward"), _attention_rates(length), strict=True))
            for length in SEQUENCE_LENGTHS
        },
        "memory_gb_per_second": _memory_rate(),
        "host_us_per_kernel": _operator_microseconds(),
        "optimizer_gb_per_second": _optimizer_rate(),
        "collective_ms": _collectives(rank_count),
    }
    if rank == 0:
        Path(answer).write_text(yaml.safe_dump(figures, sort_keys=False))
    distributed.destroy_process_group()


def _seconds(work: Callable[[], object]) -> float:
    """Return the median over repetitions of the slowest rank's time, all starting together."""
    work()
    times = []
    for _ in range(REPEAT_COUNT):
        distributed.barrier()
        start = time.perf_counter()
        work()
        slowest = torch.tensor(time.perf_counter() - start, dtype=torch.float64)
        distributed.all_reduce(slowest, op=distributed.ReduceOp.MAX)
        times.append(float(slowest))
    return statistics.median(times)


def _gemm_rate(inner_size: int) -> float:
    """Return GFLOP/s of an fp32 product of `TOKENS` rows with this inner size."""
    left = torch.randn(TOKENS, inner_size)
    right = torch.randn(inner_size, OUTER_SIZE)
    seconds = _seconds(lambda: left @ right)
    return round(2e-9 * TOKENS * inner_size * OUTER_SIZE / seconds, 1)


def _attention_rates(length: int) -> tuple[float, float]:
    """Return GFLOP/s of causal attention, forward and backward, in FLOPs of the causal half.

    Backward counts 2.5 times forward, as the planner does.
    """
    query, key, value = (
        torch.randn(TOKENS // length, HEAD_COUNT, length, HEAD_SIZE, requires_grad=True)
        for _ in range(3)
    )

    def forward() -> torch.Tensor:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)

    def both() -> None:
        forward().sum().backward()  # type: ignore[no-untyped-call]

    flop = 2.0 * TOKENS * HEAD_COUNT * 2 * HEAD_SIZE * (length + 1) / 2
    forward_seconds = _seconds(forward)
    backward_seconds = max(_seconds(both) - forward_seconds, 1e-9)
    return (
        round(1e-9 * flop / forward_seconds, 1),
        round(2.5e-9 * flop / backward_seconds, 1),
    )


def _memory_rate() -> float:
    """Return GB/s of an elementwise sum out of cache: two reads and a write."""
    left, right = torch.randn(ELEMENT_COUNT), torch.randn(ELEMENT_COUNT)
    out = torch.empty(ELEMENT_COUNT)
    seconds = _seconds(lambda: torch.add(left, right, out=out))
    return round(3 * 4e-9 * ELEMENT_COUNT / seconds, 2)


def _operator_microseconds() -> float:
    """Return microseconds of an operator too small to compute anything, as autograd records it."""
    one = torch.ones(16, requires_grad=True)

    def chain() -> torch.Tensor:
        value = one
        for _ in range(SMALL_OPERATOR_COUNT):
            value = value * 1.0
        return value

    return round(1e6 * _seconds(chain) / SMALL_OPERATOR_COUNT, 2)


def _optimizer_rate() -> float:
    """Return GB/s of AdamW at 28 bytes a parameter: four reads and three writes in fp32."""
    parameter = torch.nn.Parameter(torch.randn(ELEMENT_COUNT))
    parameter.grad = torch.randn(ELEMENT_COUNT)
    seconds = _seconds(torch.optim.AdamW([parameter]).step)
    return round(28e-9 * ELEMENT_COUNT / seconds, 2)


def _collectives(rank_count: int) -> Figures:
    """Return milliseconds by collective, ranks in the group, and bytes of the whole message."""
    figures: Figures = {}
    for count in sorted({2, rank_count}):
        group = distributed.new_group(list(range(count)))
        for name, start in _operations(count, group).items():
            inside = distributed.get_rank() < count
            figures[f"{name}_{count}"] = {
                size: round(1e3 * _seconds(start(size) if inside else _nothing), 3)
                for size in MESSAGE_BYTES
            }
    return figures


def _nothing() -> None:
    """Stand in for a collective on ranks outside its group."""


def _operations(count: int, group: Any) -> dict[str, Callable[[int], Callable[[], object]]]:
    """Return by name what makes a collective of a whole message of so many bytes."""

    def all_reduce(size: int) -> Callable[[], object]:
        whole = torch.zeros(size // 4)
        return lambda: distributed.all_reduce(whole, group=group)

    def all_gather(size: int) -> Callable[[], object]:
        whole, share = torch.zeros(size // 4), torch.zeros(size // 4 // count)
        return lambda: distributed.all_gather_into_tensor(whole, share, group=group)

    def reduce_scatter(size: int) -> Callable[[], object]:
        whole, share = torch.zeros(size // 4), torch.zeros(size // 4 // count)
        return lambda: distributed.reduce_scatter_tensor(share, whole, group=group)

    def send_recv(size: int) -> Callable[[], object]:
        whole, rank = torch.zeros(size // 4), distributed.get_rank()
        if rank == 0:
            return lambda: distributed.send(whole, dst=1, group=group)
        if rank == 1:
            return lambda: distributed.recv(whole, src=0, group=group)
        return _nothing

    return {
        "all_reduce": all_reduce,
        "all_gather": all_gather,
        "reduce_scatter": reduce_scatter,
        "send_recv": send_recv,
    }


if __name__ == "__main__":
    main()
