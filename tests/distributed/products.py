"""Matrix products of 16 bits, computed in fp32 by CPUs that have no instructions for them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def products_in_32_bits() -> Iterator[None]:
    """Let `aten::mm` of the CPU compute in fp32 inside the block, and answer in what it is given.

    A CPU without instructions for bf16 takes ten times as long in bf16. Who counts live bytes sees
    the operator and its result as ever: what a kernel allocates for itself no mode is told of.
    """
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is overridden
        library.impl("mm", _product, "CPU")
    try:
        yield
    finally:
        library._destroy()


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    wide = torch.bmm(left.float().unsqueeze(0), right.float().unsqueeze(0))
    return wide.squeeze(0).to(left.dtype)
