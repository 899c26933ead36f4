"""Attention by torch's fused kernels, of groups of queries that share keys.

Shapes: queries [B, N, S, H], keys and values [B, K, T, H], N a multiple of K.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

_HEAD = 1


def fused_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options: Any
) -> torch.Tensor:
    """Return what each query gathers, [B, N, S, H]; `options` as of torch's own function.

    torch's fused kernel for CUDA tensors in 32 bits takes no groups: it would form all scores of
    these, so that their keys are repeated for it (`check_batch_size_and_num_heads_dense` in
    aten/src/ATen/native/transformers/sdp_utils_cpp.h).
    """
    group_size = query.shape[_HEAD] // key.shape[_HEAD]
    if group_size > 1 and query.is_cuda and query.dtype is torch.float32:
        key = key.repeat_interleave(group_size, dim=_HEAD)
        value = value.repeat_interleave(group_size, dim=_HEAD)
        group_size = 1
    return functional.scaled_dot_product_attention(
        query, key, value, enable_gqa=group_size > 1, **options
    )
