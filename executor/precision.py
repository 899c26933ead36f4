"""Precision: the number formats that a rank computes, sums and sends in.

What a plan has in fp32 is in torch's default format: fp32, unless a script has asked for fp64.
Where more than 16 bits are needed, fp32 is the least that is used, so that fp64 is not rounded.
"""

from __future__ import annotations

import torch

from planner.schema.job import Precision

_NARROW = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}


def compute_dtype(precision: Precision) -> torch.dtype:
    """Return the format that forward and backward run in."""
    return _NARROW.get(precision, torch.get_default_dtype())


def sum_dtype() -> torch.dtype:
    """Return the format that gradients are summed in over micro-batches and ranks."""
    return wide(torch.get_default_dtype())


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return fp32, or fp64 where `dtype` is."""
    return torch.promote_types(dtype, torch.float32)


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return `tensor` in fp32, or as it is in fp64."""
    return tensor.to(wide(tensor.dtype))
