"""Feature local: whether what column linears put out is looked at part by part, up to row linears.

A tensor-parallel rank has a part of what a column linear puts out: heads, or single features. What
looks at all of them there, as a softmax over features does, comes to another number without an
error. So a forward of one sequence is held to one in whose batch each row is a rank: column linears
give each row its part, and row linears add up what all rows have. Linears take little: a column's
output is one of its inputs times a number, a row's a number times the sum of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

import torch
from torch import nn
from torch.func import functional_call

from executor.errors import OF_NO_USE
from executor.models.adapters import unadapted
from executor.models.token_local import AtHeadError, hankel, stubbed

_LENGTH = 4
_LARGEST_DIFFERENCE = 1e-6  # relative, in fp64; other features change more than rounding
Linear = Callable[[torch.Tensor], torch.Tensor]


def is_feature_local(  # noqa: PLR0913 - what of a module is known
    module: nn.Module,
    degree: int,
    *,
    column: Collection[str],
    row: Collection[str],
    head: str,
    token_count: int,
    others: Collection[str] = (),
) -> bool | None:
    """Return whether what comes to `head` is the same where `degree` ranks share the linears.

    `token_count` is how many tokens the embedding knows; `others` are further inputs of forward.
    `None` where its forward cannot be tried so.
    """
    generator = torch.Generator().manual_seed(0)
    tensors = (*module.named_parameters(), *module.named_buffers())
    values = {name: hankel(item, generator) for name, item in tensors}
    tokens = torch.randint(token_count, (1, _LENGTH), generator=generator)

    def at_head(ranks: int) -> torch.Tensor:
        given = tokens.repeat(ranks, 1)
        named = {name: torch.zeros_like(given) for name in others}
        stubs = _linears(module, ranks, column=column, row=row)
        try:
            with stubbed(module, stubs, head), torch.no_grad():
                functional_call(module, values, (given,), named)
        except AtHeadError as reached:
            return reached.hidden
        raise ValueError(head)

    try:
        whole, shared = at_head(1), at_head(degree)
    except OF_NO_USE:
        return None
    if shared.shape[1:] != whole.shape[1:] or not bool(whole.isfinite().all()):
        return None
    return bool((shared - whole).norm() < _LARGEST_DIFFERENCE * whole.norm())


def _linears(
    module: nn.Module, ranks: int, *, column: Collection[str], row: Collection[str]
) -> Mapping[str, Linear]:
    generator = torch.Generator().manual_seed(1)
    stubs: dict[str, Linear] = {}
    for path in (*column, *row):
        linear = unadapted(module.get_submodule(path))
        assert isinstance(linear, nn.Linear)  # noqa: S101 - declarations are checked before
        sizes = linear.in_features, linear.out_features
        ins, outs = (torch.rand(size, generator=generator).double() for size in sizes)
        stub = partial(_column, outs) if path in column else partial(_row, ins, outs)
        stubs[path] = partial(stub, ranks)
    return stubs


def _column(outs: torch.Tensor, ranks: int, inputs: torch.Tensor) -> torch.Tensor:
    """Return each rank's part of outputs, each an input times a number of `outs`."""
    places = torch.arange(len(outs)) % inputs.shape[-1]
    whole = (inputs[..., places] * outs).reshape(ranks, -1, len(outs))
    own = [part[rank] for rank, part in enumerate(whole.chunk(ranks, dim=-1))]
    return torch.stack(own).reshape(*inputs.shape[:-1], -1)


def _row(ins: torch.Tensor, outs: torch.Tensor, ranks: int, inputs: torch.Tensor) -> torch.Tensor:
    """Return on each rank what all have: the sum of their inputs by `ins`, times `outs`."""
    parts = inputs.reshape(ranks, -1, len(ins) // ranks) * ins.reshape(ranks, 1, -1)
    total = parts.sum((0, -1)).unsqueeze(-1) * outs
    return total.repeat(ranks, 1).reshape(*inputs.shape[:-1], len(outs))
