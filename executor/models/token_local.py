"""Token local: whether a module treats each token alone, but in what gathers whole sequences.

Ranks that split a sequence run the rest of a forward on their own tokens, and what looks at others
there, as a mean over the sequence does, comes to another number without an error. So the forward of
a sequence is held to those of its halves, with every gathering module handing on what it is given.
Weights need no memory for that: each is a Hankel matrix, W_ij = v_(i + j), of random numbers v.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from executor.errors import OF_NO_USE

_LENGTH = 8
_LARGEST_DIFFERENCE = 1e-6  # relative, in fp64; other tokens change more than rounding
Stub = Callable[..., Any]


def is_token_local(
    module: nn.Module,
    gathering: Collection[str],
    *,
    head: str,
    token_count: int,
    others: Collection[str],
) -> bool | None:
    """Return whether what comes to `head` depends on each token alone, beside `gathering` modules.

    `token_count` is how many tokens the embedding knows; `others` are further inputs of forward, as
    masks are. `None` where its forward cannot be tried so.
    """
    generator = torch.Generator().manual_seed(0)
    tensors = (*module.named_parameters(), *module.named_buffers())
    values = {name: _hankel(item, generator) for name, item in tensors}
    tokens = torch.randint(token_count, (1, _LENGTH), generator=generator)

    def outputs(given: torch.Tensor) -> torch.Tensor:
        named = {name: torch.zeros_like(given) for name in others}
        found = functional_call(module, values, (given,), named)
        assert isinstance(found, torch.Tensor)  # noqa: S101 - else it cannot be tried
        return found

    for stub in (_hand_on, _hand_on_beside):
        stubs = {**dict.fromkeys(gathering, stub), head: _hand_on}
        with _stubbed(module, stubs), torch.no_grad():
            try:
                whole = outputs(tokens)
                halves = torch.cat([outputs(half) for half in tokens.chunk(2, dim=1)], dim=1)
                difference = float((whole - halves).norm() / whole.norm())
            except OF_NO_USE:
                continue
        if math.isfinite(difference):
            return difference < _LARGEST_DIFFERENCE
    return None


def _hand_on(hidden: torch.Tensor, *_given: Any, **_named: Any) -> torch.Tensor:
    return hidden


def _hand_on_beside(hidden: torch.Tensor, *_given: Any, **_named: Any) -> Any:
    """Return what attention does that gives its weights, or a cache, as well."""
    return hidden, None


@contextmanager
def _stubbed(module: nn.Module, stubs: Mapping[str, Stub]) -> Iterator[None]:
    """Let modules do what their stubs do, by their paths, and none draw."""
    was_training = {item: item.training for item in module.modules()}
    stubbed = {module.get_submodule(path): stub for path, stub in stubs.items()}
    module.eval()
    for item, stub in stubbed.items():
        item.forward = stub
    try:
        yield
    finally:
        for item in stubbed:
            del item.forward
        for item, training in was_training.items():
            item.training = training


def _hankel(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return numbers of the shape of `tensor`, in fp64 if it has floating point."""
    if not tensor.is_floating_point():
        return tensor.new_zeros((), device="cpu").expand(tensor.shape)
    if not tensor.is_meta:
        return tensor.detach().double()
    count = 1 + sum(size - 1 for size in tensor.shape)
    numbers = torch.rand(max(count, 1), generator=generator, dtype=torch.float64)
    return numbers.as_strided(tensor.shape, (1,) * tensor.dim())
