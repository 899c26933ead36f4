"""Whole tensor: one of the unsplit model's, gathered from the ranks that hold parts of it."""

from __future__ import annotations

import torch
from torch.distributed.tensor import DTensor

from executor.host_memory import like, plain


def whole_tensor(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return all of `tensor`; a collective call over the ranks that hold parts of it.

    A part that lies on the host goes to `device` first, where collectives reach it.
    """
    if not isinstance(tensor, DTensor):
        return tensor.detach()
    whole = like(plain(tensor.detach()).to(device), tensor)
    assert isinstance(whole, DTensor)  # noqa: S101 - as `tensor` is
    return whole.full_tensor()
