"""Runs as a calibration keeps them."""

from __future__ import annotations

from typing import Any

from planner.schema.job import LearntRun, Precision, Stack


def a_learnt_run(**changes: Any) -> LearntRun:
    """Return a run of 8B parameters on eight A100, as long as predicted unless told otherwise."""
    fields = {
        "device": "a100-sxm4-80gb",
        "stack": Stack.TORCH,
        "precision": Precision.BF16,
        "device_count": 8,
        "tensor_parallel_degree": 1,
        "pipeline_parallel_degree": 1,
        "micro_batch_size": 2,
        "sequence_length": 2048,
        "parameter_count": 8_000_000_000,
        "log_error": 0.0,
        "shared_deviation": 0.2,
        "own_deviation": 0.1,
    }
    return LearntRun.model_validate({**fields, **changes})
