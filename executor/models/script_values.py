"""Script values: what a script itself gives values on the meta device, where they are lost.

Constructors of libraries do so too, and how their parameters begin is known. A script is whoever
called torch from outside of these: `nn.init.zeros_(model.lm_head.weight)`, or a layer of its own.
Not so torch's norms, which begin alike whoever builds them. Some functions of `torch.nn.init` pass
over tensors on the meta device, and are watched themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any, Self

import torch
from torch.nn import init
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Functions of `torch.nn.init` that do nothing to a tensor on the meta device.
_PASSING_OVER = ("_no_grad_trunc_normal_", "orthogonal_", "sparse_", "dirac_")
_PASSED_THROUGH = {"torch", *sys.stdlib_module_names}
_LIBRARIES = frozenset({"transformers", "peft", "accelerate", "executor", "meshwright"})
_ATEN = torch.ops.aten
_COPIES = (_ATEN.clone.default, _ATEN._to_copy.default)  # noqa: SLF001 - an operator's name


class ScriptValues(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the storages that a script writes to, or makes, inside the block."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._watched: dict[str, Any] = {}

    def __enter__(self) -> Self:
        """Begin to look."""
        self._watched = {name: getattr(init, name) for name in _PASSING_OVER}
        for name, function in self._watched.items():
            setattr(init, name, partial(self._passed_over, function))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        """Look no more."""
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        for name, function in self._watched.items():
            setattr(init, name, function)

    def __torch_dispatch__(
        self,
        operator: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run `operator`, and note what it has given values."""
        del types
        result = operator(*args, **(kwargs or {}))
        if _gives_values(operator) and _is_called_by_script(sys._getframe(1)):  # noqa: SLF001
            for tensor in _tensors(result):
                self._note(tensor)
        return result

    def has(self, tensor: torch.Tensor) -> bool:
        """Return whether the script has given `tensor`, or what it is a view of, its values."""
        return tensor.untyped_storage()._cdata in self._storages  # noqa: SLF001

    def _passed_over(
        self, function: Callable[..., torch.Tensor], tensor: torch.Tensor, *given: Any, **named: Any
    ) -> torch.Tensor:
        if _is_called_by_script(sys._getframe(1)):  # noqa: SLF001 - who calls
            self._note(tensor)
        return function(tensor, *given, **named)

    def _note(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self._storages[storage._cdata] = storage  # noqa: SLF001 - no public identity


def _gives_values(operator: Any) -> bool:
    """Return whether an operator writes, or makes a tensor that is no copy and no view."""
    schema = operator._schema  # noqa: SLF001 - torch has no public name
    is_view = any(item.alias_info is not None for item in schema.returns)
    return schema.is_mutable or not (is_view or operator in _COPIES)


def _tensors(result: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))


def _is_called_by_script(frame: FrameType | None) -> bool:
    """Return whether the innermost caller outside of torch and Python is none of the libraries."""
    while frame is not None:
        if _begins_norm(frame):
            return False
        module = str(frame.f_globals.get("__name__", ""))
        package = module.partition(".")[0]
        is_passed_through = module == __name__ or package in _PASSED_THROUGH
        if not is_passed_through:
            return package not in _LIBRARIES
        frame = frame.f_back
    return False


def _begins_norm(frame: FrameType) -> bool:
    """Return whether one of torch's norms gives its weights 1 and its biases 0."""
    kind = type(frame.f_locals.get("self"))
    is_norm = kind.__module__.startswith("torch.nn.") and "Norm" in kind.__name__
    return is_norm and frame.f_code.co_name in {"__init__", "reset_parameters"}
