"""Stated: program variables that a row's notes say where its columns do not.

Options of Megatron-Core and NVIDIA's configurations as logs and launch scripts print them, of
PaddleNLP, and kernels that are named for what they are.
"""

from __future__ import annotations

import re

from planner.schema.measured_run import MeasuredRun

# By column: the first pattern that the notes have says its value. Of Megatron-Core's graphs
# `transformer_engine` captures parts of a layer alone, and routing by itself is a small one.
_VARIABLES: dict[str, tuple[tuple[re.Pattern[str], str], ...]] = {
    "norm_kernel": (
        (re.compile(r"\bRMS(Norm)? kernel\b|\buse_fused_rms_norm=(1|True)\b"), "fused"),
        (re.compile(r"\bnorm kernel: (?!.*RMS)|\buse_fused_rms_norm=(0|False)\b"), "unfused"),
    ),
    "attention_kernel": (
        (re.compile(r"\bflash_?attention_?(v1|1)\b", re.IGNORECASE), "flash1"),
        (re.compile(r"\bflash_?attention_?(v?2)\b", re.IGNORECASE), "flash2"),
        (re.compile(r"\bflash_?attention_?(v?3)\b", re.IGNORECASE), "flash3"),
    ),
    "dispatcher": (
        (re.compile(r"\bmoe_flex_dispatcher_backend=['\"]?(deepep|hybridep)\b"), "flex"),
    ),
    "cuda_graphs": (
        (re.compile(r"\bcuda_graph_impl=(full_iteration|local)\b"), "full"),
        (re.compile(r"\b(MCORE|LAYER|FULL)_CUDA_GRAPH=(1|True)\b"), "full"),
        (re.compile(r"\bcuda_graph_scope=\[[^\]]*'attn'[^\]]*'moe_router'"), "attention"),
    ),
}


def with_variables(run: MeasuredRun) -> MeasuredRun:
    """Return the run with what its notes state in columns that it leaves open."""
    found = {
        column: value
        for column, ways in _VARIABLES.items()
        if getattr(run, column) is None and (value := _value(run.notes or "", ways)) is not None
    }
    return run.model_copy(update=found) if found else run


def _value(notes: str, ways: tuple[tuple[re.Pattern[str], str], ...]) -> str | None:
    return next((value for pattern, value in ways if pattern.search(notes)), None)
