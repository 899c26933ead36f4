"""Partial scalars: numbers of sharded tensors that are still sums of ranks' parts.

The norm or mean of a sharded tensor is such a number until something asks for all of it. torch's
`item()`, and `float()` and `bool()` by it, give a rank's own part: optimizers that read a norm so,
as many implementations of LAMB and Prodigy do, would take another step on each rank.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import DTensor


def read_whole_scalars() -> None:
    """Let `item()` of a sharded tensor's number give the whole, a collective call of its ranks."""
    handlers = DTensor._op_dispatcher._custom_op_handlers  # noqa: SLF001 - torch has no public name
    handlers[torch.ops.aten._local_scalar_dense.default] = _whole  # noqa: SLF001 - an operator


def _whole(op_call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    del op_call, kwargs
    (scalar,) = args
    return scalar.full_tensor().item()
