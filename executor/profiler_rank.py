"""Profiler's rank: what each process of `executor.profiler` measures."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.nn import functional

from executor.apply.float8 import has_float8
from executor.cores import keep_to_own_cores, usable_core_count
from executor.optimizers import adamw
from executor.profiler_collectives import OPERATIONS, neighbours, nothing
from executor.rank_main import die_with_launcher
from executor.stopwatch import Stopwatch, Work
from planner.schema.figures import (
    AttentionFigure,
    CollectiveFigure,
    MachineFigures,
    ProductFigure,
)
from planner.schema.job import Precision

_FORMATS = {Precision.FP32: torch.float32, Precision.BF16: torch.bfloat16}
_PRODUCTS_OF_A_LINEAR = 3
_SMALL_OPERATORS = 200
_SLEEP_CYCLES = 50_000_000  # 25 ms at 2 GHz: launching so many takes a few
_PRODUCT_ROWS, _PRODUCTS_BESIDE = 512, 8
_LEAST_SHARE = 0.05  # below it noise hides what is measured as a difference
# About 70 ms of work for a lone rank. Of 12 ms a busy process beside it took nothing: the ratio was
# 2.8 where two ranks shared a core (AMD EPYC, 2026-11-27).
_LAYER_WIDTH, _LAYER_REPETITIONS = 256, 48
_ADAMW_BYTES = 28  # a parameter: four reads and three writes in fp32
_TIMEOUT = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extent:
    """How large the pieces of work are, on a kind of device."""

    rows: int
    inner_sizes: tuple[int, ...]
    outer_size: int
    attention_tokens: int
    attention_heads: int
    lengths: tuple[int, ...]
    head_sizes: tuple[int, ...]
    elements: int
    message_bytes: tuple[int, ...]


_EXTENTS = {
    "cpu": _Extent(
        rows=512,
        inner_sizes=(64, 256, 1024, 2048),
        outer_size=512,
        attention_tokens=1024,
        attention_heads=4,
        lengths=(128, 512),
        head_sizes=(32, 128),
        elements=2**21,
        message_bytes=(2**12, 2**16, 2**20, 2**22, 2**24),
    ),
    "cuda": _Extent(
        rows=8192,
        inner_sizes=(512, 2048, 8192),
        outer_size=8192,
        attention_tokens=16384,
        attention_heads=32,
        lengths=(1024, 4096, 16384),
        head_sizes=(64, 128),
        elements=2**28,
        message_bytes=(2**12, 2**16, 2**20, 2**24, 2**27),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What all ranks are to do: how many they are, on what, in how much time."""

    rank_count: int
    kind: str
    seconds: float
    store_path: str
    answer_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Before:
    """What there was before ranks took their cores: the load average, and cores for all of them."""

    load: float
    core_count: int


def measure_rank(rank: int, assignment: Assignment) -> None:
    """Measure as rank `rank`; rank 0 writes the figures to the answer's path."""
    die_with_launcher()
    kind, rank_count = assignment.kind, assignment.rank_count
    device = torch.device(kind, rank) if kind == "cuda" else torch.device("cpu")
    before = _Before(load=os.getloadavg()[0], core_count=usable_core_count())
    if kind == "cuda":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
        keep_to_own_cores(rank, rank_count)
    distributed.init_process_group(
        "nccl" if kind == "cuda" else "gloo",
        init_method=f"file://{assignment.store_path}",
        rank=rank,
        world_size=rank_count,
        timeout=_TIMEOUT,
        device_id=device if kind == "cuda" else None,
    )
    bench = _Bench(
        device, rank_count=rank_count, core_count=before.core_count, seconds=assignment.seconds
    )
    figures = bench.figures(before)
    if rank == 0:
        Path(assignment.answer_path).write_text(figures.to_json(), encoding="utf-8")
    distributed.barrier()
    distributed.destroy_process_group()


class _Bench:
    """All measurements of one rank; rank 0 says on stderr how far it is."""

    def __init__(
        self, device: torch.device, *, rank_count: int, core_count: int, seconds: float
    ) -> None:
        self._device = device
        self._extent = _EXTENTS[device.type]
        self._rank_count, self._core_count = rank_count, core_count
        self._group_sizes = sorted({2, rank_count} - {1}) if rank_count > 1 else []
        self._total = self._count()
        self._done = 0
        budget = seconds / self._total
        self._left = torch.randn(_PRODUCT_ROWS, _LAYER_WIDTH, device=device)
        self._right = torch.randn(_LAYER_WIDTH, _PRODUCT_ROWS, device=device)
        self._watch = Stopwatch(device=device, budget_seconds=budget)

    def figures(self, before: _Before) -> MachineFigures:
        """Return everything."""
        products = tuple(self._products())
        attentions = tuple(self._attentions())
        to_device, from_device = self._copies()
        launch = self._small_operator()
        return MachineFigures(
            device_kind="cuda" if self._device.type == "cuda" else "cpu",
            device_name=_device_name(self._device),
            backend=distributed.get_backend(),
            rank_count=self._rank_count,
            core_count=before.core_count,
            device_memory_bytes=_device_memory_bytes(self._device, self._rank_count),
            host_memory_bytes=_host_memory_bytes(),
            products=products,
            attentions=attentions,
            memory_bytes_per_second=self._memory(),
            kernel_seconds=self._small_kernel(launch),
            host_seconds_per_kernel=launch,
            optimizer_bytes_per_second=self._optimizer(),
            to_device_bytes_per_second=to_device,
            from_device_bytes_per_second=from_device,
            runtime_bytes=_runtime_bytes(self._device),
            lone_speed_ratio=self._lone_speed_ratio(),
            hidden_reduce_ratio=self._hidden_reduce_ratio(),
            split_operator_seconds=max(self._split_operator() - launch, 0.0),
            collectives=tuple(self._collectives()),
            conditions=f"torch {torch.__version__}, {before.core_count} cores, load average "
            f"{before.load:.1f} before and {os.getloadavg()[0]:.1f} after, its own ranks included",
        )

    def _count(self) -> int:
        extent = self._extent
        products = (len(_FORMATS) + has_float8(self._device)) * len(extent.inner_sizes)
        attentions = 2 * len(extent.lengths) * len(extent.head_sizes)
        kinds = len(OPERATIONS) * len(extent.message_bytes)
        return products + attentions + 5 + self._shares_cores * 4 + len(self._group_sizes) * kinds

    def _seconds(self, what: str, work: Work) -> float:
        self._say(what)
        return max(self._watch.seconds(work), 1e-9)

    def _kernel_seconds(self, what: str, work: Work) -> float:
        """Return what a kernel takes alone, which it never takes less than inside a step."""
        self._say(what)
        return max(self._watch.least_seconds(work), 1e-9)

    def _say(self, what: str) -> None:
        self._done += 1
        if distributed.get_rank() == 0:
            print(f"[{self._done}/{self._total}] {what}", file=sys.stderr, flush=True)  # noqa: T201

    def _products(self) -> Iterator[ProductFigure]:
        extent = self._extent
        for precision, dtype in _FORMATS.items():
            for inner in extent.inner_sizes:
                left = torch.randn(extent.rows, inner, device=self._device, dtype=dtype)
                right = torch.randn(inner, extent.outer_size, device=self._device, dtype=dtype)
                what = f"{precision.value} product, {inner} inner elements"
                yield ProductFigure(
                    precision=precision,
                    rows=extent.rows,
                    inner_size=inner,
                    outer_size=extent.outer_size,
                    seconds=self._kernel_seconds(what, _call(torch.matmul, left, right)),
                )
        for inner in extent.inner_sizes if has_float8(self._device) else ():
            what = f"fp8 product, {inner} inner elements"
            yield ProductFigure(
                precision=Precision.FP8,
                rows=extent.rows,
                inner_size=inner,
                outer_size=extent.outer_size,
                seconds=self._kernel_seconds(what, self._in_8_bits(inner)) / _PRODUCTS_OF_A_LINEAR,
            )

    def _in_8_bits(self, inner: int) -> Work:
        """Return the three products of a linear in 8 bits, all of one size.

        Forward adds in the tensor cores' own precision, both gradients exactly, as in torchao
        (`float8/config.py`: `use_fast_accum`). Gradients of outputs are in e5m2.
        """
        extent, device = self._extent, self._device
        left = torch.randn(extent.rows, inner, device=device)
        right = torch.randn(extent.outer_size, inner, device=device).to(torch.float8_e4m3fn).T
        narrow, wide_range = left.to(torch.float8_e4m3fn), left.to(torch.float8_e5m2)
        scale = torch.ones((), device=device)

        def three() -> None:
            for given, is_fast in ((narrow, True), (wide_range, False), (wide_range, False)):
                torch._scaled_mm(  # noqa: SLF001 - what torchao calls
                    given,
                    right,
                    scale_a=scale,
                    scale_b=scale,
                    out_dtype=torch.bfloat16,
                    use_fast_accum=is_fast,
                )

        return three

    def _attentions(self) -> Iterator[AttentionFigure]:
        extent = self._extent
        on_cpu = self._device.type == "cpu"
        precision = Precision.FP32 if on_cpu else Precision.BF16
        for head_size in extent.head_sizes:
            for length in extent.lengths:
                batch = max(extent.attention_tokens // length, 1)
                shape = (batch, extent.attention_heads, length, head_size)
                tensors = [
                    torch.randn(shape, device=self._device, dtype=_FORMATS[precision])
                    for _ in range(3)
                ]
                forward, backward = self._attention(tensors, f"{length} x heads of {head_size}")
                yield AttentionFigure(
                    precision=precision,
                    batch=batch,
                    head_count=extent.attention_heads,
                    head_size=head_size,
                    sequence_length=length,
                    forward_seconds=forward,
                    backward_seconds=backward,
                )

    def _attention(self, tensors: list[torch.Tensor], what: str) -> tuple[float, float]:
        """Return seconds of forward, and of backward without it."""
        query, key, value = (tensor.requires_grad_() for tensor in tensors)

        def forward() -> torch.Tensor:
            return functional.scaled_dot_product_attention(query, key, value, is_causal=True)

        def both() -> None:
            forward().sum().backward()  # type: ignore[no-untyped-call]

        alone = self._kernel_seconds(f"attention forward, {what}", forward)
        together = self._kernel_seconds(f"attention backward, {what}", both)
        return alone, max(together - alone, 0.1 * together)

    def _memory(self) -> float:
        """Return bytes a second of an elementwise sum: two reads and a write."""
        count = self._extent.elements
        left, right, out = (torch.ones(count, device=self._device) for _ in range(3))
        seconds = self._kernel_seconds("memory", lambda: torch.add(left, right, out=out))
        return 12.0 * count / seconds

    def _small_operator(self) -> float:
        """Return seconds of an operator too small to compute anything, or of its gradient."""
        one = torch.ones(16, device=self._device, requires_grad=True)

        def both() -> None:
            _chain(one).sum().backward()  # type: ignore[no-untyped-call]

        return self._seconds("small operators", both) / (2 * _SMALL_OPERATORS)

    def _small_kernel(self, launch_seconds: float) -> float:
        """Return the device's own seconds of such an operator, which launching takes on a CPU.

        A GPU is kept busy until the host has launched all of them.
        """
        if self._device.type != "cuda":
            return launch_seconds
        one = torch.ones(16, device=self._device)
        begun, ended = (torch.Event("cuda", enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(self._device)
        torch.cuda._sleep(_SLEEP_CYCLES)  # type: ignore[no-untyped-call] # noqa: SLF001 - as torch's tests
        begun.record()
        _chain(one)
        ended.record()
        torch.cuda.synchronize(self._device)
        return float(begun.elapsed_time(ended)) / 1e3 / _SMALL_OPERATORS

    def _split_operator(self) -> float:
        """Return the same of an operator on DTensors; only CPU ranks wait for the host."""
        if not self._shares_cores:
            return 0.0
        mesh = init_device_mesh(self._device.type, (self._rank_count,))
        one = DTensor.from_local(torch.ones(16, device=self._device), mesh).requires_grad_()
        what = "small operators on split tensors"
        return self._seconds(what, _call(_chain, one)) / _SMALL_OPERATORS

    def _optimizer(self) -> float:
        """Return bytes a second of AdamW's update on the host's memory, as runs have it.

        Beside a GPU its states are beyond what the host's caches hold.
        """
        count = min(self._extent.elements, 2**26)
        parameter = torch.nn.Parameter(torch.ones(count))
        parameter.grad = torch.ones(count)
        step = adamw([parameter], learning_rate=0.0).step
        return _ADAMW_BYTES * count / self._seconds("optimizer", step)

    @property
    def _shares_cores(self) -> bool:
        return self._device.type == "cpu" and self._rank_count > 1

    def _lone_speed_ratio(self) -> float:
        """Return how many times as fast ranks train a small layer with a core to themselves.

        As many are at work as there are cores: where cores are threads of one, a rank that has the
        machine to itself is faster still, which no stage of a pipeline ever is. The
        work is long enough that whatever else runs on these cores gets its turn meanwhile.
        """
        if not self._shares_cores:
            return 1.0
        layer = torch.nn.Sequential(
            torch.nn.Linear(_LAYER_WIDTH, _LAYER_WIDTH), torch.nn.SiLU()
        ).to(self._device)
        rows = torch.ones(self._extent.rows, _LAYER_WIDTH, device=self._device)

        def trained() -> None:
            for _ in range(_LAYER_REPETITIONS):
                layer(rows).sum().backward()

        alone = trained if distributed.get_rank() < self._core_count else nothing
        self._say("all ranks at work, and one on each core")
        together, apart = self._watch.seconds_in_turn((trained, alone))
        return max(together / apart, 1.0)

    def _hidden_reduce_ratio(self) -> float:
        """Return what an all_reduce adds to products beside it, over what it takes before them.

        It is as large as the gradients of a wide block: of a small one most time is spent waiting,
        which products hide. All three are timed in turn, so that a machine that slows down slows
        all of them.
        """
        if not self._shares_cores:
            return 1.0
        reduced = torch.zeros(self._extent.message_bytes[-1] // 4, device=self._device)

        def products() -> None:
            for _ in range(_PRODUCTS_BESIDE):
                self._product()

        def beside() -> None:
            work = distributed.all_reduce(reduced, async_op=True)
            products()
            assert work is not None  # noqa: S101 - always given when asynchronous
            work.wait()

        def before() -> None:
            distributed.all_reduce(reduced)
            products()

        self._say("products alone, beside an all_reduce, and after one")
        alone, hidden, waited = self._watch.seconds_in_turn((products, beside, before))
        if waited <= alone:
            return 1.0
        return min(max((hidden - alone) / (waited - alone), _LEAST_SHARE), 1.0)

    def _copies(self) -> tuple[float, float]:
        """Return bytes a second to the device and back; on a CPU both are within its memory."""
        count = min(self._extent.elements, 2**26)
        pinned = self._device.type == "cuda"
        host = torch.ones(count, pin_memory=pinned)
        there = torch.ones(count, device=self._device)
        to = self._seconds("copy to the device", lambda: there.copy_(host, non_blocking=True))
        back = self._seconds("copy from the device", lambda: host.copy_(there, non_blocking=True))
        return 4.0 * count / to, 4.0 * count / back

    def _collectives(self) -> Iterator[CollectiveFigure]:
        """Yield every collective over neighbours; where groups fill the machine all have theirs."""
        before = self._seconds("a product", self._product) if self._shares_cores else 0.0
        for count in self._group_sizes:
            group, inside = neighbours(count, self._rank_count)
            for kind, start in OPERATIONS.items():
                for size in self._extent.message_bytes:
                    work = start(size, count, group, self._device) if inside else nothing
                    what = f"{kind} of {size // 1024} KiB over {count} ranks"
                    yield CollectiveFigure(
                        kind=kind,
                        rank_count=count,
                        message_bytes=size,
                        seconds=self._collective_seconds(what, work, before),
                    )

    def _collective_seconds(self, what: str, work: Work, product_seconds: float) -> float:
        """Return what a collective adds to a product before it, where ranks share cores."""
        if not self._shares_cores:
            return self._seconds(what, work)

        def after_product() -> None:
            self._product()
            work()

        both = self._seconds(what, after_product)
        return max(both - product_seconds, _LEAST_SHARE * both)

    def _product(self) -> None:
        torch.matmul(self._left, self._right)


def _chain(one: torch.Tensor) -> torch.Tensor:
    value = one
    for _ in range(_SMALL_OPERATORS):
        value = value * 1.0
    return value


def _call(function: Callable[..., object], *arguments: object) -> Work:
    return lambda: function(*arguments)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _device_memory_bytes(device: torch.device, rank_count: int) -> float:
    """Return a rank's memory: the GPU's, or an equal share of what the host has free."""
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    return _free_host_bytes() / rank_count


def _host_memory_bytes() -> float:
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _free_host_bytes() -> float:
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"))


def _runtime_bytes(device: torch.device) -> float:
    """Return what a rank holds outside of tensors: its context, or its resident libraries."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return float(max(total - free - torch.cuda.memory_reserved(device), 1))
    resident = Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]
    return float(int(resident) * os.sysconf("SC_PAGE_SIZE"))
