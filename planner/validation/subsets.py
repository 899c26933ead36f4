"""Subsets: the runs that accuracy is promised for, and the keys that runs can be grouped by."""

from __future__ import annotations

from collections.abc import Callable

from planner.schema.job import Precision
from planner.validation.comparison import Comparison
from planner.validation.measurement import BULK_TIER

Chosen = Callable[[Comparison], bool]
Keyed = Callable[[Comparison], str]

_SMALL_BELOW = 3e9  # parameters


def _is_bulk(comparison: Comparison) -> bool:
    return comparison.case.run.tier == BULK_TIER


def _is_mixture(comparison: Comparison) -> bool:
    return any(layer.experts_per_token for layer, _ in comparison.case.workload.runs)


def _is_small(comparison: Comparison) -> bool:
    return comparison.case.workload.parameter_count < _SMALL_BELOW


def _has_adapters(comparison: Comparison) -> bool:
    return comparison.case.job.adapters is not None


def _of(comparison: Comparison, *precisions: Precision) -> bool:
    return comparison.case.job.precision in precisions


def _dense_from_3b(comparison: Comparison) -> bool:
    others = (_is_bulk, _is_mixture, _is_small, _has_adapters)
    return not any(other(comparison) for other in others)


SUBSETS: dict[str, Chosen] = {
    "all": lambda c: not _is_bulk(c),
    "dense bf16, from 3B": lambda c: _dense_from_3b(c) and _of(c, Precision.BF16),
    "dense fp16, from 3B": lambda c: _dense_from_3b(c) and _of(c, Precision.FP16),
    "dense fp8, from 3B": lambda c: _dense_from_3b(c) and _of(c, Precision.FP8),
    "mixture of experts": lambda c: not _is_bulk(c) and _is_mixture(c),
    "small, below 3B": lambda c: (
        not (_is_bulk(c) or _is_mixture(c) or _has_adapters(c)) and _is_small(c)
    ),
    "adapters (LoRA)": _has_adapters,
    "bulk": _is_bulk,
}

KEYS: dict[str, Keyed] = {
    "family": lambda c: c.case.run.family_name,
    "device": lambda c: c.case.hardware.kinds[0].device,
    "stack": lambda c: c.case.job.stack.value,
    "precision": lambda c: c.case.job.precision.value,
    "model": lambda c: c.case.run.model or "unnamed",
    "checkpointing": lambda c: str(c.case.run.recompute or "not stated"),
    "memory-class": lambda c: c.case.run.mem_class or "not measured",
    "tier": lambda c: c.case.run.tier or "not stated",
}
