"""Machine profile: a device profile fitted to what was measured, and the cluster that has it.

Products: rate = plateau x K / (K + K0) is a line in 1/K for the inverse of the rate, fitted by
least squares of relative errors. Attention: the same in the length of sequences; its width of heads
by the mean ratio of rates. The network: latency, bandwidth and exponent of the one level, by
least squares of the logarithms of the planner's own collective times over those measured.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from planner.cost.collectives import (
    all_gather_seconds,
    all_reduce_seconds,
    all_to_all_seconds,
    reduce_scatter_seconds,
    send_recv_seconds,
)
from planner.cost.configuration import Floats
from planner.network import Level
from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.figures import (
    AttentionFigure,
    CollectiveFigure,
    MachineFigures,
    ProductFigure,
)
from planner.schema.job import Precision
from planner.units import GIB

_BACKWARD_FLOP_RATIO = 2.5  # of fused attention, as the planner counts it
_HEAD_SIZE_OF_PROFILES = 128
_ROUNDS, _STEPS = 6, 5
_EXPONENTS = (1.0, 0.8, 0.6, 0.45)
_RATIOS = (0.7, 1.0, 1.4)
# Ranks that take turns on a core lose caches to one another: 5 to 13 % of two ranks' speed on an
# AMD EPYC (2026-11-26). More than this is noise.
_SHARING_LOSS_RATIO = 1.25
# What a CPU draws, and costs, cannot be measured from inside; both are stated as the shipped
# profile of CPU ranks has them.
_CPU_WATTS, _CPU_PRICE = 50.0, 0.05
_GPU_WATTS, _GPU_PRICE = 700.0, 0.0

Fields = dict[str, Any]


def measured_cluster(figures: MachineFigures) -> Cluster:
    """Return one node of this machine's ranks, with the profile that was fitted to them."""
    fields = device_profile_fields(figures)
    name = str(fields["device"])
    group = NodeGroup(
        name="here",
        device=name,
        node_count=1,
        devices_per_node=figures.rank_count,
        memory_bytes=figures.device_memory_bytes,
        host_memory_bytes=figures.host_memory_bytes,
    )
    return Cluster(
        name=f"{figures.rank_count}x{name}", node_groups=(group,), device_profiles={name: fields}
    )


def device_profile_fields(figures: MachineFigures) -> Fields:
    """Return the fields of a device profile, in the units of `profiles/devices`."""
    on_cpu = figures.device_kind == "cpu"
    rates = {p: product_rate(_of(figures.products, p)) for p in (Precision.BF16, Precision.FP32)}
    sixteen, full = rates[Precision.BF16], rates[Precision.FP32]
    in_8_bits = _of(figures.products, Precision.FP8)
    eight = product_rate(in_8_bits) if in_8_bits else sixteen
    return {
        "device": device_name(figures),
        "kind": figures.device_kind,
        **({"core_count": figures.core_count} if on_cpu else {}),
        "memory_gib": figures.device_memory_bytes / GIB,
        "memory_bandwidth_gb_per_second": figures.memory_bytes_per_second / 1e9,
        "memory_efficiency": 1.0,
        "peak_tflop_per_second": {
            "bf16": sixteen[0] / 1e12,
            "fp16": sixteen[0] / 1e12,
            "fp8": eight[0] / 1e12,
            "fp32": full[0] / 1e12,
        },
        # Kernels alone; what they lose inside a step, `planner.calibration.in_situ` measures.
        "in_situ_efficiency": 1.0,
        "gemm": {
            **_gemm(sixteen, figures),
            "fp32": _gemm(full, figures),
            **({"fp8": _gemm(eight, figures)} if in_8_bits else {}),
        },
        "not_in_hardware": [] if in_8_bits or on_cpu else ["fp8"],
        "attention": attention_fields(
            figures.attentions,
            figures.conditions,
            peak_ratio=rates[figures.attentions[0].precision][0] / sixteen[0],
        ),
        "kernel_us": figures.kernel_seconds * 1e6,
        "host_us_per_kernel": figures.host_seconds_per_kernel * 1e6,
        "runtime_gib": figures.runtime_bytes / GIB,
        **({"allocator_slack_ratio": 0.0} if on_cpu else {}),
        # On a CPU communication is work of the same cores.
        **({"overlap": {"hidden_ratio": 0.0, "contention_ratio": 0.0}} if on_cpu else {}),
        "lone_speed_ratio": _lone_speed_ratio(figures),
        "hidden_reduce_ratio": figures.hidden_reduce_ratio,
        "split_operator_us": figures.split_operator_seconds * 1e6,
        "levels": [level_fields(figures.collectives, figures.conditions)],
        "host": {
            "memory_gib_per_device": figures.host_memory_bytes / figures.rank_count / GIB,
            "to_device_gb_per_second": figures.to_device_bytes_per_second / 1e9,
            "from_device_gb_per_second": figures.from_device_bytes_per_second / 1e9,
            "optimizer_gb_per_second": figures.optimizer_bytes_per_second / 1e9,
            "source": figures.conditions,
        },
        "price_per_device_hour": _CPU_PRICE if on_cpu else _GPU_PRICE,
        "power_watts": _CPU_WATTS if on_cpu else _GPU_WATTS,
    }


def _gemm(rate: tuple[float, float], figures: MachineFigures) -> Fields:
    """Return the rate of products whose plateau is the format's peak."""
    return {"efficiency": 1.0, "inner_size_half": rate[1], "source": figures.conditions}


def _lone_speed_ratio(figures: MachineFigures) -> float:
    """Return the lone rank's speed, at most what as many ranks as share its core can leave it."""
    ranks_per_core = math.ceil(figures.rank_count / figures.core_count)
    most = ranks_per_core * _SHARING_LOSS_RATIO if ranks_per_core > 1 else 1.0
    return min(figures.lone_speed_ratio, most)


def device_name(figures: MachineFigures) -> str:
    """Return a name for the device: it begins with its kind, which the executor reads."""
    words = re.sub(r"[^a-z0-9]+", "-", figures.device_name.lower()).strip("-")
    kind = figures.device_kind
    return f"{kind}-measured" if words in {"", kind} else f"{kind}-{words[:40]}-measured"


def product_rate(figures: Sequence[ProductFigure]) -> tuple[float, float]:
    """Return the plateau in FLOP/s, and the inner size at which half of it is reached."""
    return _saturating([(item.inner_size, item.flop_per_second) for item in figures])


def attention_fields(
    figures: Sequence[AttentionFigure], source: str, *, peak_ratio: float
) -> Fields:
    """Return the rates of attention at heads of 128, and what narrower heads lose.

    Rates of a profile are those in 16 bits; what was measured is `peak_ratio` of them, the rate of
    products in its format over that in 16 bits, which is how other formats are priced.
    """
    ratio = _half_head_ratio(figures)
    widest = max(item.head_size for item in figures)
    scale = peak_ratio * ratio ** -math.log2(min(widest / _HEAD_SIZE_OF_PROFILES, 1.0))
    wide = [item for item in figures if item.head_size == widest]
    forward = _saturating(
        [(item.sequence_length, item.forward_flop / item.forward_seconds) for item in wide]
    )
    backward = _saturating(
        [
            (
                item.sequence_length,
                _BACKWARD_FLOP_RATIO * item.forward_flop / item.backward_seconds,
            )
            for item in wide
        ]
    )
    return {
        "forward_tflop_per_second": forward[0] / scale / 1e12,
        "forward_tokens_half": forward[1],
        "backward_tflop_per_second": backward[0] / scale / 1e12,
        "backward_tokens_half": backward[1],
        "half_head_ratio": ratio,
        "source": source,
    }


def level_fields(figures: Sequence[CollectiveFigure], source: str) -> Fields:
    """Return the one network level of the machine, fitted to all collectives that were measured."""
    level = _fitted_level(figures) if figures else _level(1e-6, 1e9, 1.0, 1.0, 1)
    return {
        "name": "machine",
        "device_count": None,
        "bandwidth_gb_per_second": level.bandwidth_bytes_per_second / 1e9,
        "latency_us": level.latency_seconds * 1e6,
        "norm_exponent": level.norm_exponent,
        "all_reduce_bandwidth_ratio": level.all_reduce_bandwidth_ratio,
        "collectives": dict(_own_collectives(figures)),
        "source": source,
    }


def _own_collectives(figures: Sequence[CollectiveFigure]) -> Iterator[tuple[str, Fields]]:
    """Yield each kind of collective with the latency, bandwidth and exponent that fit it alone.

    Algorithms differ: over gloo an all_reduce passes twice as many hops as an all_gather, and an
    all_to_all one.
    """
    for kind in dict.fromkeys(item.kind for item in figures):
        level = _fitted_level([item for item in figures if item.kind == kind], ratios=(1.0,))
        yield (
            kind,
            {
                "bandwidth_gb_per_second": level.bandwidth_bytes_per_second / 1e9,
                "latency_us": level.latency_seconds * 1e6,
                "norm_exponent": level.norm_exponent,
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Curve:
    """Seconds of one collective of so many ranks, by size of message."""

    kind: str
    rank_count: int
    message_bytes: Floats
    seconds: Floats

    def errors(self, level: Level) -> Floats:
        """Return the logarithms of predicted over measured seconds."""
        if self.kind == "send_recv":
            predicted = send_recv_seconds(self.message_bytes, distance=1, levels=(level,))
        else:
            predicted = _COLLECTIVES[self.kind](
                self.message_bytes, rank_count=self.rank_count, stride=1, levels=(level,)
            )
        errors: Floats = np.log(np.maximum(predicted, 1e-12) / self.seconds)
        return errors


def _curves(figures: Sequence[CollectiveFigure]) -> list[_Curve]:
    alike: dict[tuple[str, int], list[CollectiveFigure]] = {}
    for item in figures:
        alike.setdefault((item.kind, item.rank_count), []).append(item)
    return [
        _Curve(
            kind=kind,
            rank_count=rank_count,
            message_bytes=np.array([item.message_bytes for item in items]),
            seconds=np.array([item.seconds for item in items]),
        )
        for (kind, rank_count), items in alike.items()
    ]


def _of(figures: Iterable[ProductFigure], precision: Precision) -> list[ProductFigure]:
    return [item for item in figures if item.precision is precision]


def _half_head_ratio(figures: Sequence[AttentionFigure]) -> float:
    """Return the rate at half the width of heads over that at the whole, at most 1."""
    by_width: dict[int, list[float]] = {}
    for item in figures:
        rate = math.log(item.forward_flop / item.forward_seconds)
        by_width.setdefault(item.head_size, []).append(rate)
    narrow, wide = min(by_width), max(by_width)
    if narrow == wide:
        return 1.0
    lost = float(np.mean(by_width[wide]) - np.mean(by_width[narrow]))
    return min(math.exp(-lost / math.log2(wide / narrow)), 1.0)


def _saturating(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return (P, h) of rate = P size / (size + h): 1/rate = 1/P + h/P x 1/size, by relative error.

    Where rates fall with size instead of rising, or one size was measured, h is 0 and P their mean.
    """
    sizes, rates = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True))
    rows = np.stack([rates, rates / sizes], axis=1)  # of (1/P, h/P), weighed to predict 1
    inverse, slope = np.linalg.lstsq(rows, np.ones_like(rates), rcond=None)[0]
    if slope <= 0.0 or inverse <= 0.0 or len(set(sizes)) == 1:
        return float(1.0 / np.mean(1.0 / rates)), 0.0
    return float(1.0 / inverse), round(float(slope / inverse), 3)


def _fitted_level(
    figures: Sequence[CollectiveFigure], *, ratios: Sequence[float] = _RATIOS
) -> Level:
    """Return the level with the least sum of squared logarithmic errors, by a grid made finer."""
    ranks = max(item.rank_count for item in figures)
    latency = min(item.seconds for item in figures)
    bandwidth = max(item.message_bytes / item.seconds for item in figures)
    curves = _curves(figures)
    width = 30.0
    best = _level(latency, bandwidth, 1.0, 1.0, ranks)
    for _ in range(_ROUNDS):
        factors = np.geomspace(1.0 / width, width, _STEPS)
        candidates = (
            _level(
                best.latency_seconds * a,
                best.bandwidth_bytes_per_second * b,
                exponent,
                ratio,
                ranks,
            )
            for a, b, exponent, ratio in product(factors, factors, _EXPONENTS, ratios)
        )
        best = min(candidates, key=lambda level: _loss(curves, level))
        width **= 0.5
    return best


def _loss(curves: Sequence[_Curve], level: Level) -> float:
    return sum(float((curve.errors(level) ** 2).sum()) for curve in curves)


_COLLECTIVES: dict[str, Callable[..., Any]] = {
    "all_reduce": all_reduce_seconds,
    "all_gather": all_gather_seconds,
    "reduce_scatter": reduce_scatter_seconds,
    "all_to_all": all_to_all_seconds,
}


def _level(
    latency: float, bandwidth: float, exponent: float, ratio: float, device_count: int
) -> Level:
    return Level(
        name="machine",
        device_count=device_count,
        bandwidth_bytes_per_second=float(bandwidth),
        latency_seconds=float(latency),
        norm_exponent=exponent,
        all_reduce_bandwidth_ratio=ratio,
    )
