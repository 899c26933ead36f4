"""Initial state: the values that a script's own module begins with, equal on every rank.

The module is built once more, with storage and a fixed seed, exactly as the script alone would
build it; each rank copies its shards out of that and lets it go. Where parameters get their values
elsewhere, it is built without storage for them: only buffers and other tensors have values then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import distributed, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from executor.errors import ModelMismatchError
from executor.tensor_source import Ranges
from planner.units import GIB, format_bytes

SAID_BYTES = GIB // 4


class InitialState:
    """Parameters and buffers of a module as `build_model` under `torch.manual_seed(seed)` has them.

    Parameters lie in host memory, whole, from the first question for one until `forget`.
    """

    def __init__(
        self, build_model: Callable[[], nn.Module], *, seed: int, has_parameters: bool = True
    ) -> None:
        self._build_model = build_model
        self._seed = seed
        self._has_parameters = has_parameters
        self._model: nn.Module | None = None
        self._frame: nn.Module | None = None

    def say_whole(self, built: nn.Module) -> None:
        """Tell whoever watches rank 0 what the whole of `built` takes of each rank's host memory.

        Nothing is said of less than `SAID_BYTES`.
        """
        size_bytes = sum(item.numel() * item.element_size() for item in built.parameters())
        if size_bytes < SAID_BYTES or (distributed.is_initialized() and distributed.get_rank()):
            return
        line = (
            f"each rank builds the whole {type(built).__qualname__}, {format_bytes(size_bytes)} of "
            "host memory, to begin as it would alone: pass weights=, or declaration="
            "meshwright.Declaration(initial_value=...), and each makes its own part alone"
        )
        print(line, file=sys.stderr, flush=True)  # noqa: T201 - whoever watches should know

    def module(self) -> nn.Module:
        """Return the whole module on the CPU, built when it is first asked for."""
        if self._model is None:
            self._model = self._built()
        return self._model

    def frame(self) -> nn.Module:
        """Return the module with its buffers, and with its parameters if these begin as here."""
        if self._has_parameters:
            return self.module()
        if self._frame is None:
            with parameters_on_meta():
                self._frame = self._built()
        return self._frame

    def piece(self, name: str, shape: torch.Size, ranges: Ranges) -> torch.Tensor:
        """Return a part of the parameter `name`.

        Raises:
            ModelMismatchError: if `build_model` does not build the same model twice.
        """
        known = dict(self.module().named_parameters(remove_duplicate=False))
        found = known.get(name)
        if found is None or found.shape != shape:
            raise ModelMismatchError(
                f"has no parameter {name} of shape {tuple(shape)} when it is called again",
                field="build_model",
                value=None if found is None else tuple(found.shape),
                remedy="let build_model() build the same model each time",
            )
        return found.detach()[ranges]

    def buffer(self, _name: str, _shape: torch.Size) -> torch.Tensor | None:
        """Return nothing: `restore_buffers` gives all of them their values."""
        return None

    def restore_buffers(self, chain: nn.Module, device: torch.device) -> None:
        """Give the buffers of `chain` that have the module's names the module's values.

        So it does with tensors that a module has as plain attributes, in lists and mappings too.
        """
        frame = self.frame()
        known = dict(frame.named_buffers(remove_duplicate=False))
        modules = dict(frame.named_modules(remove_duplicate=False))
        for path, submodule in chain.named_modules():
            for name in list(submodule._buffers):  # noqa: SLF001 - torch has no setter by name
                whole = known.get(f"{path}.{name}".lstrip(".").replace(_WRAPPER, ""))
                if whole is not None:
                    submodule._buffers[name] = whole.detach().clone().to(device)  # noqa: SLF001
            own = modules.get(f"{path}.".replace(_WRAPPER, "").removesuffix("."))
            for name, value in list(vars(submodule).items()) if own is not None else ():
                if name in vars(own).keys() - _OF_MODULES and _lacks_values(value):
                    submodule.__dict__[name] = _moved(vars(own)[name], device)

    def forget(self) -> None:
        """Free the whole module; a later question would build it again."""
        self._model = self._frame = None

    def _built(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.manual_seed(self._seed)
            return self._build_model()


@contextmanager
def parameters_on_meta() -> Iterator[None]:
    """Let modules that are built inside keep shapes of parameters alone, and buffers as they are.

    A parameter is given up as soon as its module takes it, so that one at a time has storage.
    """
    register = nn.Module.register_parameter

    def register_on_meta(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and not parameter.is_meta:
            shape = parameter.detach().to("meta")
            parameter = nn.Parameter(shape, requires_grad=parameter.requires_grad)
        register(module, name, parameter)

    nn.Module.register_parameter = register_on_meta  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


_WRAPPER = "_checkpoint_wrapped_module."
_OF_MODULES = frozenset({"_parameters", "_buffers", "_modules"})


def _lacks_values(value: Any) -> bool:
    """Return whether a plain attribute has tensors on the meta device that are no parameters."""
    tensors = [item for item in tree_leaves(value) if isinstance(item, torch.Tensor)]
    has_own = not any(item.requires_grad or isinstance(item, nn.Parameter) for item in tensors)
    return has_own and any(item.is_meta for item in tensors)


def _moved(value: Any, device: torch.device) -> Any:
    def moved(item: torch.Tensor) -> torch.Tensor:
        return item if item.is_meta else item.detach().clone().to(device)

    return tree_map_only(torch.Tensor, moved, value)
