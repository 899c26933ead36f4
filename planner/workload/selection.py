"""Selective checkpointing: which matrix products keep their output, and what is run again.

torchtitan's per-operator policy, as it stood through 2025 and as our executor applies it: attention
keeps its output, every second matrix product too, counted in order of execution; all else is run
again. The grouped products of routed experts and the kernels of scans are not among the operators
that it knows, so they are neither counted nor kept.

Source: `torchtitan/distributed/activation_checkpoint.py`, `_apply_op_sac`.
"""

from __future__ import annotations

from planner.workload.layer import ActivationElements, Gemm


def recomputed_ratio(gemms: tuple[Gemm, ...]) -> float:
    """Return the share of the products' forward FLOPs that backward runs again (0 without any)."""
    total = sum(gemm.flop_per_token() for gemm in gemms)
    if not total:
        return 0.0
    return 1.0 - sum(gemm.flop_per_token() for gemm in _kept(gemms)) / total


def kept_products(gemms: tuple[Gemm, ...]) -> ActivationElements:
    """Return the elements per token of the outputs that are kept.

    A column-split product's output is divided; that of a row-split one is a whole partial sum on
    every rank, and that of a product nobody splits is whole as well.
    """
    kept = _kept(gemms)
    return ActivationElements(
        gathered=float(sum(gemm.outer_size for gemm in kept if gemm.split != "outer")),
        replicated=0.0,
        sharded=float(sum(gemm.outer_size for gemm in kept if gemm.split == "outer")),
    )


def _kept(gemms: tuple[Gemm, ...]) -> tuple[Gemm, ...]:
    return tuple(gemm for gemm in gemms if not gemm.expert_count and not gemm.weightless)[::2]
