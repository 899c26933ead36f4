"""Runs as a machine with other scalars would give them: priced, with noise, for calibration."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from planner.calibration.parts import COUNT, NAMES, priced_seconds, scalars_of
from planner.calibration.row import Row, sorted_rows
from planner.cost.configuration import Floats
from planner.schema.job import Stack
from planner.schema.measured_run import MeasuredRun
from planner.schema.scalars import Scalars
from tests.measured_rows import TORCHTITAN

PAIR = ("a100-sxm4-80gb", Stack.TORCH)
TRUTH = Scalars(
    compute_efficiency_ratio=0.85,
    memory_efficiency_ratio=0.75,
    communication_efficiency_ratio=0.6,
    host_overhead_ratio=1.0,
)


def factors_of(scalars: Scalars) -> Floats:
    """Return the logarithms of factors on time that scalars stand for, [scalars]."""
    unit = scalars_of(np.ones(COUNT))
    return np.array([math.log(getattr(scalars, n)) / math.log(getattr(unit, n)) for n in NAMES])


def shapes() -> Iterator[dict[str, Any]]:
    """Yield runs that differ in what bounds them: products, memory, wires."""
    for model, hidden, layers in (("small", 1024, 24), ("middle", 4096, 32), ("large", 8192, 40)):
        for tensor in (1, 8):
            for length in (2048, 16384):
                for devices in (8, 128):
                    yield {
                        "model": model,
                        "layers": layers,
                        "hidden_size": hidden,
                        "ffn_size": 7 * hidden // 2,
                        "heads": hidden // 128,
                        "kv_heads": 8,
                        "seq_len": length,
                        "num_gpus": devices,
                        "tp": tensor,
                        "sequence_parallel": False,
                        "dp": devices // tensor,
                        "gbs": 2 * devices // tensor,
                        "mbs": 1,
                        "zero_stage": 3,
                    }


def measured_fields(
    truth: Scalars, *, noise: float, seed: int = 1, **changes: Any
) -> list[dict[str, Any]]:
    """Return JSON-able runs of `shapes` whose steps are those of `truth`, times exp(noise)."""
    random = np.random.default_rng(seed)
    found = []
    for index, shape in enumerate(shapes()):
        fields = {**TORCHTITAN, **shape, **changes, "id": f"made-{index}", "step_time_s": 1.0}
        (row,) = rows_of([fields])
        seconds = priced_seconds(row, factors_of(truth)) * math.exp(noise * random.normal())
        found.append({**fields, "step_time_s": seconds})
    return found


def rows_of(fields: list[dict[str, Any]]) -> list[Row]:
    """Return the rows of runs that are all of one device and stack."""
    runs = [MeasuredRun.from_fields(one, source="test") for one in fields]
    sorting = sorted_rows(runs)
    assert not sorting.left_out
    (rows,) = sorting.rows.values()
    return rows
