"""Route: what each part of a chain is called with, followed through a forward on the meta device.

A chain hands one tensor from part to part. Beside it a part may be given inputs of forward as they
are, such as masks and positions, which every stage of a pipeline has of its own batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from executor.errors import UnsupportedPlanError

_HANDED_ON = None
Source = str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a part's arguments come from: an input's name, `None` for what is handed on."""

    places: tuple[Source, ...]
    named: Mapping[str, Source]

    def call(
        self, module: nn.Module, hidden: torch.Tensor, inputs: Mapping[str, torch.Tensor]
    ) -> Any:
        """Return what `module` makes of `hidden` and inputs, `None` for one not given."""

        def value(source: Source) -> torch.Tensor | None:
            return hidden if source is _HANDED_ON else inputs.get(source)

        arguments = [value(source) for source in self.places]
        return module(*arguments, **{name: value(source) for name, source in self.named.items()})

    def takes(self, name: str) -> bool:
        """Return whether the part is given the input `name` of forward."""
        return name in {*self.places, *self.named.values()}


def follow(
    module: nn.Module,
    paths: Sequence[str],
    example: torch.Tensor,
    *,
    first: str,
    others: Sequence[str],
) -> dict[str, Route]:
    """Return the routes of the modules at `paths`, which forward calls in turn.

    `example` is its `first` input on the meta device; `others` are inputs of the same shape. What
    the first part is handed is the first input, which later ones may be given by name as well.

    Raises:
        UnsupportedPlanError: if forward does more than hand on, between or behind them.
    """
    inputs = {name: torch.zeros_like(example) for name in others}
    follower = _Follower(paths, inputs, first=(first, example))
    parts = [(path, module.get_submodule(path)) for path in paths]
    handles = [part.register_forward_pre_hook(follower.enter) for _, part in parts]
    handles += [
        part.register_forward_hook(follower.hook(path), with_kwargs=True) for path, part in parts
    ]
    try:
        with torch.no_grad(), _without_values([part for _, part in parts[1:-2]]):
            output = module(example, **inputs)
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        follower.problem = follower.problem or f"its forward fails on the meta device: {error}"
        output = None
    finally:
        for handle in handles:
            handle.remove()
    problem = follower.problem or follower.end(output)
    if problem is not None:
        raise UnsupportedPlanError(
            "cuts the model between parts that hand one tensor on, but "
            + " ".join(problem.split())[:300],
            field="strategy.pipeline_parallel_degree",
            value=f"{len(paths) - 3} blocks of {type(module).__qualname__}",
            remedy="move what happens between the parts into one of them, or plan with "
            "pipeline_parallel_degree limited to 1",
        )
    return follower.routes


@contextmanager
def _without_values(blocks: Sequence[nn.Module]) -> Iterator[None]:
    """Let blocks that need values, as routers do, hand on a tensor as it came to them."""
    own = {block: vars(block).get("forward") for block in blocks}
    for block in own:
        block.forward = partial(_handed_on, block.forward)
    try:
        yield
    finally:
        for block, forward in own.items():
            del block.forward
            if forward is not None:
                block.forward = forward


def _handed_on(forward: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    try:
        return forward(*arguments, **named)
    except (RuntimeError, NotImplementedError, TypeError) as error:
        given = [item for item in (*arguments, *named.values()) if isinstance(item, torch.Tensor)]
        hidden = next((item for item in given if item.is_floating_point()), None)
        if hidden is None or "meta" not in str(error).lower():
            raise
        return torch.empty_like(hidden)


class _Follower:
    """Follows one tensor through the parts of a forward."""

    def __init__(
        self,
        paths: Sequence[str],
        inputs: Mapping[str, torch.Tensor],
        *,
        first: tuple[str, torch.Tensor],
    ) -> None:
        self.problem: str | None = None
        self.routes: dict[str, Route] = {}
        self._expected = list(paths)
        self._names = {id(tensor): name for name, tensor in inputs.items()}
        self._first = first
        self._depth = 0
        self._last: object = None

    def hook(self, path: str) -> _Hook:
        """Return the hook of the module at `path`."""
        return _Hook(self, path)

    def enter(self, _part: nn.Module, _arguments: object) -> None:
        """Note that a part begins; what it calls itself is no part of the chain."""
        self._depth += 1

    def see(
        self, path: str, arguments: tuple[object, ...], named: dict[str, object], output: object
    ) -> None:
        """Note that the module at `path` made `output` of its arguments."""
        self._depth -= 1
        if self.problem is not None or self._depth:
            return
        is_first = self._last is None
        route = Route(
            places=tuple(self._names.get(id(item)) for item in arguments),
            named={name: self._names.get(id(item)) for name, item in named.items()},
        )
        handed = [item for item in (*arguments, *named.values()) if id(item) not in self._names]
        if not self._expected or path != self._expected[0]:
            expected = self._expected[0] if self._expected else "nothing"
            self.problem = f"forward calls {path} where {expected} should be"
        elif len(handed) != 1:
            self.problem = f"{path} is given {len(handed)} arguments that are no inputs of forward"
        elif not is_first and handed[0] is not self._last:
            self.problem = f"what {path} is given is not what the part before it returned"
        elif not isinstance(output, torch.Tensor):
            self.problem = f"{path} returns a {type(output).__qualname__}, no tensor"
        else:
            self._expected.pop(0)
            self.routes[path] = route
            self._last = output
            self._names[id(self._first[1])] = self._first[0]

    def end(self, output: object) -> str | None:
        """Return what is wrong at the end of forward, which returned `output`."""
        if self._expected:
            return f"forward never calls {self._expected[0]}"
        return None if output is self._last else "forward does more after its head"


class _Hook:
    def __init__(self, follower: _Follower, path: str) -> None:
        self._follower = follower
        self._path = path

    def __call__(
        self,
        _module: nn.Module,
        arguments: tuple[object, ...],
        named: dict[str, object],
        output: object,
    ) -> None:
        self._follower.see(self._path, arguments, named, output)
