"""Precision: the number formats that a rank computes, sums and sends in.

What a plan has in fp32 is in torch's default format: fp32, unless a script has asked for fp64.
Where more than 16 bits are needed, fp32 is the least that is used, so that fp64 is not rounded.
"""

from __future__ import annotations

import torch

from planner.schema.job import Job, Precision

_NARROW = {
    Precision.BF16: torch.bfloat16,
    Precision.FP16: torch.float16,
    Precision.FP8: torch.bfloat16,  # but for what products read
}


def compute_dtype(precision: Precision) -> torch.dtype:
    """Return the format that forward and backward run in."""
    return _NARROW.get(precision, torch.get_default_dtype())


def take_product_format(job: Job, device: torch.device) -> tuple[str, ...]:
    """Let products of fp32 run in TF32 where `job` says so; tell where they run otherwise.

    What a script, or its container's environment, has asked torch for is left as it is.
    """
    if job.precision is not Precision.FP32:
        return ()
    on_gpu = device.type == "cuda"
    if job.tensor_float_32 and on_gpu:
        torch.set_float32_matmul_precision("high")
    elif job.tensor_float_32:
        return ("products run in fp32, planned in TF32, which processors do not have",)
    elif on_gpu and torch.get_float32_matmul_precision() != "highest":
        return ("products run in TF32, planned in fp32: plan with tensor_float_32 true",)
    return ()


def sum_dtype() -> torch.dtype:
    """Return the format that gradients are summed in over micro-batches and ranks."""
    return wide(torch.get_default_dtype())


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return fp32, or fp64 where `dtype` is."""
    return torch.promote_types(dtype, torch.float32)


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return `tensor` in fp32, or as it is in fp64."""
    return tensor.to(wide(tensor.dtype))
