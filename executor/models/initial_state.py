"""Initial state: the values that a script's own module begins with, equal on every rank.

The module is built once more, with storage and a fixed seed, exactly as the script alone would
build it; each rank copies its shards out of that and lets it go.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from executor.errors import ModelMismatchError


class InitialState:
    """Parameters and buffers of a module as `build_model` under `torch.manual_seed(seed)` has them.

    They lie in host memory, whole, from the first question until `forget`.
    """

    def __init__(self, build_model: Callable[[], nn.Module], *, seed: int) -> None:
        self._build_model = build_model
        self._seed = seed
        self._model: nn.Module | None = None

    def module(self) -> nn.Module:
        """Return the whole module on the CPU, built when it is first asked for."""
        if self._model is None:
            with torch.random.fork_rng(devices=[]), torch.device("cpu"):
                torch.manual_seed(self._seed)
                self._model = self._build_model()
        return self._model

    def value(self, name: str, shape: torch.Size, _generator: torch.Generator) -> torch.Tensor:
        """Return the whole parameter `name`.

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
        return found.detach()

    def restore_buffers(self, chain: nn.Module, device: torch.device) -> None:
        """Give the buffers of `chain` that have the module's names the module's values."""
        known = dict(self.module().named_buffers(remove_duplicate=False))
        for path, submodule in chain.named_modules():
            for name in list(submodule._buffers):  # noqa: SLF001 - torch has no setter by name
                whole = known.get(f"{path}.{name}".lstrip(".").replace(_WRAPPER, ""))
                if whole is not None:
                    submodule._buffers[name] = whole.detach().clone().to(device)  # noqa: SLF001

    def forget(self) -> None:
        """Free the whole module; a later question would build it again."""
        self._model = None


_WRAPPER = "_checkpoint_wrapped_module."
