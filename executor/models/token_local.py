"""Token local: whether a module treats each token alone, but in what gathers whole sequences.

Ranks that split a sequence run the rest of a forward on their own tokens, and what looks at others
there, as a mean over the sequence does, comes to another number without an error. So what comes to
the head of a sequence is held to what comes of its halves, with attention and gathering modules
handing on what they are given. Weights need no memory for that: each is a Hankel matrix,
W_ij = v_(i + j), of random numbers v, and a linear hands its inputs on as often as it has outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from executor.errors import OF_NO_USE
from executor.models.positions import SequencePart

_LENGTH = 8
_LARGEST_DIFFERENCE = 1e-6  # relative, in fp64; other tokens change more than rounding
Stub = Callable[..., Any]
Tell = Callable[[nn.Module, SequencePart], None]


def is_token_local(  # noqa: PLR0913 - what of a module is known
    module: nn.Module,
    gathering: Collection[str] = (),
    *,
    embedding: str,
    head: str,
    token_count: int,
    others: Collection[str] = (),
    tell: Tell | None = None,
) -> bool | None:
    """Return whether what comes to `head` depends on each token alone.

    Others are looked at by torch's `scaled_dot_product_attention` and `gathering` modules.
    `token_count` is how many tokens the `embedding` knows; `others` are further inputs of forward,
    as masks are. Behind the embedding a rank has its own tokens, and in front of it where a module
    is `tell`ed which they are. `None` where its forward cannot be tried so.
    """
    generator = torch.Generator().manual_seed(0)
    tensors = (*module.named_parameters(), *module.named_buffers())
    values = {name: hankel(item, generator) for name, item in tensors}
    tokens = torch.randint(token_count, (1, _LENGTH), generator=generator)

    def at_head(stub: Stub, part: SequencePart) -> torch.Tensor:
        stubs = dict.fromkeys(gathering, stub)
        given = tokens
        if tell is None:
            stubs[embedding] = partial(_embedded, module.get_submodule(embedding), part)
        else:
            tell(module, part)
            given = part.of(tokens)
        named = {name: torch.zeros_like(given) for name in others}
        try:
            with stubbed(module, stubs, head), _Attention(), torch.no_grad():
                functional_call(module, values, (given,), named)
        except AtHeadError as reached:
            return reached.hidden
        finally:
            if tell is not None:
                tell(module, SequencePart())
        raise ValueError(head)

    tried = (_is_of_halves(partial(at_head, stub)) for stub in (_hand_on, _hand_on_beside))
    return next((found for found in tried if found is not None), None)


def _is_of_halves(at_head: Callable[[SequencePart], torch.Tensor]) -> bool | None:
    """Return whether what comes of tokens is what comes of their halves, `None` if not known."""
    try:
        whole = at_head(SequencePart())
        halves = [at_head(SequencePart(index=index, count=2)) for index in range(2)]
    except OF_NO_USE:
        return None
    if whole.shape[:2] != (1, _LENGTH):
        return False
    difference = float((whole - torch.cat(halves, dim=1)).norm() / whole.norm())
    return difference < _LARGEST_DIFFERENCE if math.isfinite(difference) else None


class AtHeadError(Exception):
    """What comes to the head; what is behind it has whole sequences again."""

    def __init__(self, hidden: torch.Tensor) -> None:
        self.hidden = hidden


class _Attention(TorchFunctionMode):
    """Has attention hand its values on."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Return what `function` does, values in place of attention."""
        del types
        named = kwargs or {}
        if function is not functional.scaled_dot_product_attention:
            return function(*args, **named)
        query, _, value = (*args, *(named[name] for name in ("query", "key", "value")[len(args) :]))
        return value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)


def _at_head(hidden: torch.Tensor) -> torch.Tensor:
    raise AtHeadError(hidden)


def _hand_on(hidden: torch.Tensor, *_given: Any, **_named: Any) -> torch.Tensor:
    return hidden


def _hand_on_beside(hidden: torch.Tensor, *_given: Any, **_named: Any) -> Any:
    """Return what attention does that gives its weights, or a cache, as well."""
    return hidden, None


def _embedded(embedding: nn.Module, part: SequencePart, tokens: torch.Tensor) -> torch.Tensor:
    """Return the vectors of a rank's tokens."""
    return part.of(functional.embedding(tokens, embedding.weight))  # type: ignore[arg-type]


def _spread(width: int, inputs: torch.Tensor) -> torch.Tensor:
    """Return `width` numbers of a token, of those that it has."""
    return inputs[..., torch.arange(width) % inputs.shape[-1]]


@contextmanager
def stubbed(module: nn.Module, stubs: Mapping[str, Stub], head: str) -> Iterator[None]:
    """Let modules do what their stubs do, by their paths, and linears little; none draws."""
    was_training = {item: item.training for item in module.modules()}
    linears = (item for item in module.modules() if type(item) is nn.Linear)
    stubbed: dict[nn.Module, Stub] = {item: partial(_spread, item.out_features) for item in linears}
    stubbed |= {module.get_submodule(path): stub for path, stub in stubs.items()}
    stubbed[module.get_submodule(head)] = _at_head
    is_fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    module.eval()
    own = {item: vars(item)["forward"] for item in stubbed if "forward" in vars(item)}
    for item, stub in stubbed.items():
        item.forward = stub
    try:
        yield
    finally:
        for item in stubbed:
            del item.forward
        for item, forward in own.items():
            item.forward = forward
        for item, training in was_training.items():
            item.training = training
        torch.backends.mha.set_fastpath_enabled(is_fused)


def hankel(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return numbers of the shape of `tensor`, in fp64 if it has floating point."""
    if not tensor.is_floating_point():
        return tensor.new_zeros((), device="cpu").expand(tensor.shape)
    if not tensor.is_meta:
        return tensor.detach().double()
    count = 1 + sum(size - 1 for size in tensor.shape)
    numbers = torch.rand(max(count, 1), generator=generator, dtype=torch.float64)
    return numbers.as_strided(tensor.shape, (1,) * tensor.dim())
