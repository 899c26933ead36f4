"""Initial state: the values that a script's own module begins with, equal on every rank.

The module is built once more, with a fixed seed, exactly as the script alone would build it; each
rank copies its shards out of that. Parameters are drawn as they are asked for, from records of how
the script's code drew them, and few lie in memory at a time. Where parameters get their values
elsewhere, it is built without storage for them: only buffers and other tensors have values then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import distributed, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from executor.errors import ModelMismatchError
from executor.models.recorded_storages import BUDGET_BYTES, NotRepeatedError, RecordedStorages
from executor.tensor_source import Ranges
from planner.units import GIB, format_bytes

SAID_BYTES = GIB // 4


class InitialState:
    """Parameters and buffers of a module as `build_model` under `torch.manual_seed(seed)` has them.

    Where they are recorded, at most `budget_bytes` of parameters lie in host memory, but for those
    that nothing can draw again; else, and where records fail, all do until `forget`.
    """

    def __init__(
        self,
        build_model: Callable[[], nn.Module],
        *,
        seed: int,
        has_parameters: bool = True,
        is_recorded: bool = True,
        budget_bytes: int = BUDGET_BYTES,
    ) -> None:
        self._build_model = build_model
        self._seed = seed
        self._has_parameters = has_parameters
        self._budget_bytes = budget_bytes
        self._recorded: RecordedStorages | None = None
        self._is_recorded = is_recorded
        self._frame: nn.Module | None = None
        self._parameters: dict[str, nn.Parameter] = {}

    def frame(self) -> nn.Module:
        """Return the module with its buffers, built when it is first asked for.

        It has its parameters' values where it is not recorded, and begins as here.
        """
        if self._frame is None and not self._has_parameters:
            with parameters_on_meta():
                self._frame = self._unrecorded()
        return self._drawn() if self._frame is None else self._frame

    def piece(self, name: str, shape: torch.Size, ranges: Ranges) -> torch.Tensor:
        """Return a part of the parameter `name`.

        Raises:
            ModelMismatchError: if `build_model` does not build the same model twice.
        """
        if not self._parameters:
            self._drawn()
        found = self._parameters.get(name)
        if found is None or found.shape != shape:
            raise ModelMismatchError(
                f"has no parameter {name} of shape {tuple(shape)} when it is called again",
                field="build_model",
                value=None if found is None else tuple(found.shape),
                remedy="let build_model() build the same model each time",
            )
        if self._recorded is None:
            return found.detach()[ranges]
        try:
            return self._recorded.part(found.detach(), ranges)
        except NotRepeatedError:
            self._parameters, self._recorded = dict(_named(self._unrecorded())), None
            return self.piece(name, shape, ranges)

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
        """Free the module; a later question would build it again."""
        self._frame = self._recorded = None
        self._parameters = {}

    def _drawn(self) -> nn.Module:
        """Build the module with its parameters' values; return it, or what was built before."""
        recorded = RecordedStorages(self._budget_bytes)
        try:
            with recorded if self._is_recorded else nullcontext():
                built = self._unrecorded()
            if self._is_recorded:
                recorded.keep_all(but=built.parameters())
                self._recorded, self._parameters = recorded, _taken_values(built)
            else:
                self._parameters = dict(_named(built))
        except NotRepeatedError:
            self._is_recorded = False
            built = self._unrecorded()
            self._parameters = dict(_named(built))
        self._say_held(built)
        self._frame = built if self._frame is None else self._frame
        return self._frame

    def _unrecorded(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.manual_seed(self._seed)
            return self._build_model()

    def _say_held(self, built: nn.Module) -> None:
        """Tell whoever watches rank 0 what of `built` each rank holds in host memory.

        Nothing is said of less than `SAID_BYTES`.
        """
        unique = dict(built.named_parameters()).keys()
        held = {name: self._parameters[name] for name in unique}
        if self._recorded is not None:
            held = self._recorded.held(held)
        size_bytes = sum(item.nbytes for item in held.values())
        if size_bytes < SAID_BYTES or (distributed.is_initialized() and distributed.get_rank()):
            return
        line = (
            f"each rank holds {format_bytes(size_bytes)} of {type(built).__qualname__} in host "
            f"memory, such as {next(iter(held))}, whose values torch cannot draw again: pass "
            "weights=, or declaration=meshwright.Declaration(initial_value=...), and each makes "
            "its own part alone"
        )
        print(line, file=sys.stderr, flush=True)  # noqa: T201 - whoever watches should know


@contextmanager
def parameters_on_meta() -> Iterator[None]:
    """Let modules that are built inside keep shapes of parameters alone, and buffers as they are.

    A parameter is given up as soon as its module takes it, so that one at a time has storage.
    """
    register = nn.Module.register_parameter

    def register_on_meta(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and not parameter.is_meta:
            parameter = empty_parameter(parameter)
        register(module, name, parameter)

    nn.Module.register_parameter = register_on_meta  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


def empty_parameter(parameter: nn.Parameter) -> nn.Parameter:
    """Return `parameter` without values, with what a script has noted on it."""
    empty = nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
    empty.__dict__.update(vars(parameter))
    return empty


def _taken_values(module: nn.Module) -> dict[str, nn.Parameter]:
    """Take the values of a module's parameters away; return them by name.

    Parameters stay the objects that they are, so that what else has one has no values any more, but
    for those that torch lets nobody change, as it keeps them by weak references.
    """
    named = dict(_named(module))
    values: dict[int, nn.Parameter] = {}
    replaced: dict[int, nn.Parameter] = {}
    for item in module.parameters():
        empty = empty_parameter(item)
        try:
            torch.utils.swap_tensors(item, empty)  # type: ignore[no-untyped-call]
            values[id(item)] = empty
        except RuntimeError:
            values[id(item)], replaced[id(item)] = item, empty
    for owner in module.modules():
        own = owner._parameters  # noqa: SLF001 - torch has no setter by name
        own.update({name: replaced[id(item)] for name, item in own.items() if id(item) in replaced})
    return {name: values[id(item)] for name, item in named.items()}


def _named(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return module.named_parameters(remove_duplicate=False)


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
