"""Written parameters: a forward that changes weights, which it has copies of under a plan.

Data parallelism gathers parameters for a forward and updates shards of them: what a forward writes
(`self.weight.clamp_(...)`) is lost, and training goes on with other numbers than plain torch.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.utils._python_dispatch import TorchDispatchMode

from executor.errors import ModelMismatchError

_GATHERS = "torch.distributed."


class WrittenParameters(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses operators that write to a parameter of `model` inside the block."""

    supports_higher_order_operators = True  # as a script's flex_attention is one

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._model = model

    @staticmethod
    def are_copies(model: nn.Module) -> bool:
        """Return whether parameters of `model` are gathered for a forward that is not compiled."""
        modules = list(model.modules())
        is_compiled = any(module._compiled_call_impl is not None for module in modules)  # noqa: SLF001
        return not is_compiled and any(isinstance(module, FSDPModule) for module in modules)

    def __torch_dispatch__(
        self,
        operator: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run `operator`, unless it writes to a parameter.

        Raises:
            ModelMismatchError: naming the parameter.
        """
        del types
        schema = getattr(operator, "_schema", None)  # a higher-order operator has none
        is_writing = schema is not None and schema.is_mutable and _is_of_forward()
        if is_writing and args and isinstance(args[0], torch.Tensor):
            self._check(args[0])
        return operator(*args, **(kwargs or {}))

    def _check(self, written: torch.Tensor) -> None:
        storage = _storage(written)
        for name, parameter in self._model.named_parameters():
            if _storage(parameter) == storage:
                raise ModelMismatchError(
                    "is written to in forward, which a plan's ranks do to a copy and lose",
                    field="build_model",
                    value=name,
                    remedy="compute what the forward uses from the parameter, as by "
                    "torch.nn.utils.parametrize, or write to a buffer",
                )


def _storage(tensor: torch.Tensor) -> int:
    local = getattr(tensor, "_local_tensor", tensor)
    return int(local.untyped_storage()._cdata)  # noqa: SLF001 - no public identity


def _is_of_forward() -> bool:
    """Return whether the innermost caller outside of operators is no part of gathering."""
    module = str(sys._getframe(2).f_globals.get("__name__", ""))  # noqa: SLF001
    return not module.startswith(_GATHERS)
