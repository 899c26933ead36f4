"""Local tensor: this rank's part of what several may share."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.tensor import DTensor


def local_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of `tensor`."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def local_gradient(parameter: nn.Parameter) -> torch.Tensor:
    """Return this rank's part of the gradient of a parameter that has one."""
    gradient = parameter.grad
    assert gradient is not None  # noqa: S101 - asked for where one has come, or zeros were put
    return local_tensor(gradient)
