"""Declared sizes: what operators yield whose results depend on values, where these are declared.

Fake tensors have no values: how many elements of a mask are true, or what `.item()` returns, is
known to whoever wrote the module. A size is declared for modules by a pattern of their paths, as
{"layers.*.experts": 12}, and holds for all that runs inside of them:

| operator                                      | result                                       |
|-----------------------------------------------|----------------------------------------------|
| `nonzero`, `where(mask)`, `tensor[mask]`      | so many rows                                 |
| `.item()`, `.tolist()`, `int()`, `bool()`     | the number, for each element                 |
| `bincount(minlength=n)`, `one_hot` of n kinds | n numbers: values are taken to be below it   |

In a mixture of E experts, of which each of T tokens takes k, it is T k / E: how many tokens an
expert gets where routing is balanced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from executor.errors import ModelMismatchError

_ATEN = torch.ops.aten
_BY_MASK = {_ATEN.index.Tensor, _ATEN.index_put.default, _ATEN.index_put_.default}
_MASKS = {torch.bool, torch.uint8}


class DeclaredSizes:
    """Sizes by pattern, and that of the module which runs at the moment."""

    def __init__(self, sizes: Mapping[str, int] | None = None) -> None:
        self.sizes = dict(sizes or {})
        self._running: list[int] = []
        for pattern, size in self.sizes.items():
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ModelMismatchError(
                    "must be a whole number of at least 1",
                    field=f"sizes[{pattern!r}]",
                    value=size,
                    remedy="give how many rows each module there gets of the example inputs",
                )

    @contextmanager
    def of_modules(self, model: nn.Module) -> Iterator[None]:
        """Let sizes hold while their modules of `model` run.

        Raises:
            ModelMismatchError: if a pattern names no module.
        """
        handles = []
        for pattern, size in self.sizes.items():
            named = [item for path, item in model.named_modules() if fnmatchcase(path, pattern)]
            if not named:
                raise ModelMismatchError(
                    "names no module of the model",
                    field="sizes",
                    value=pattern,
                    remedy="give a path as named_modules() has it, with * for its numbers",
                )
            for module in named:
                handles.append(module.register_forward_pre_hook(self._entered(size)))
                handles.append(module.register_forward_hook(self._left, always_call=True))
        try:
            with _CountedKinds(self):
                yield
        finally:
            self._running.clear()
            for handle in handles:
                handle.remove()

    @property
    def current(self) -> int | None:
        """Return the size of the innermost module that runs and has one."""
        return self._running[-1] if self._running else None

    def run(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what `operator` returns, by the declared size where values would decide."""
        size = self.current
        if size is None:
            return operator(*args, **kwargs)
        if operator is _ATEN.nonzero.default:
            return _places(args[0], size)
        if operator is _ATEN._local_scalar_dense.default:  # noqa: SLF001 - an operator's name
            return _number(args[0], size)
        if operator is _ATEN.bincount.default and len(args) + len(kwargs) > 1:
            length = kwargs.get("minlength", args[-1])
            return args[0].new_empty((length,), dtype=torch.long)
        if operator in _BY_MASK:
            indices = [place for item in args[1] for place in _without_mask(item, size)]
            return operator(args[0], indices, *args[2:], **kwargs)
        return operator(*args, **kwargs)

    def _entered(self, size: int) -> Callable[..., None]:
        return lambda *_: self._running.append(size)

    def _left(self, *_: Any) -> None:
        self._running.pop()

    def assumptions(self) -> tuple[str, ...]:
        """Return a sentence for each declaration."""
        return tuple(
            f"declared: each operator in {pattern} whose result depends on values yields {size}"
            for pattern, size in self.sizes.items()
        )


class _CountedKinds(TorchFunctionMode):
    """Makes one-hot rows without the look at values by which torch checks them."""

    def __init__(self, sizes: DeclaredSizes) -> None:
        super().__init__()
        self._sizes = sizes

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Return what `function` returns."""
        named = kwargs or {}
        kinds = named.get("num_classes", args[1] if len(args) > 1 else -1)
        if function is functional.one_hot and self._sizes.current is not None and kinds > 0:
            tensor = args[0] if args else named["input"]
            rows = tensor.new_zeros((*tensor.shape, kinds))
            return rows.scatter_(-1, tensor.unsqueeze(-1), 1)
        return function(*args, **named)


def _places(mask: torch.Tensor, size: int) -> torch.Tensor:
    return mask.new_empty((size, mask.dim()), dtype=torch.long)


def _number(tensor: torch.Tensor, size: int) -> int | float | bool:
    if tensor.dtype is torch.bool:
        return True
    return float(size) if tensor.is_floating_point() else size


def _without_mask(index: torch.Tensor | None, size: int) -> list[torch.Tensor | None]:
    """Return a mask as the places in each of its dimensions, any other index as it is."""
    if index is None or index.dtype not in _MASKS:
        return [index]
    return list(_places(index, size).unbind(1))
