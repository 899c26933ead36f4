"""Quantized values: what packed weights begin with, of whole ones that a rank reads and packs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch

from executor.models.first_values import FirstValues
from executor.models.quantization import PARTS
from executor.models.quantized_linear import QuantizedLinear
from executor.tensor_source import Ranges
from executor.weights import LoadedValues


class QuantizedValues:
    """Values of a model of which `linears`, by path, are packed on `device` from those of `whole`.

    One whole weight at a time is held, until the parts of another are asked for.
    """

    def __init__(
        self,
        whole: FirstValues,
        linears: Mapping[str, QuantizedLinear],
        *,
        device: torch.device,
    ) -> None:
        self._whole = whole
        self._packed = {
            path: (item.quantization, torch.Size((item.out_features, item.in_features)))
            for path, item in linears.items()
        }
        self._device = device
        self._last: tuple[str, dict[str, torch.Tensor]] = ("", {})

    def piece(self, name: str, shape: torch.Size, ranges: Ranges) -> torch.Tensor:
        """Return a part of the parameter `name`."""
        path, _, part = name.rpartition(".")
        if path not in self._packed or part not in PARTS:
            return self._whole.piece(name, shape, ranges)
        if self._last[0] != path:
            how, size = self._packed[path]
            everything = tuple(slice(0, count) for count in size)
            weight = self._whole.piece(f"{path}.weight", size, everything)
            self._last = path, how.packed(weight.detach().to(self._device))
        return self._last[1][part][ranges]

    def whole_of(self, name: str, shape: torch.Size) -> tuple[FirstValues, str, torch.Size]:
        """Return which whole tensor the parameter `name` comes from, and whose value that is."""
        path, _, part = name.rpartition(".")
        if path in self._packed and part in PARTS:
            return self._whole, f"{path}.weight", self._packed[path][1]
        return self._whole, name, shape

    def buffer(self, name: str, shape: torch.Size) -> torch.Tensor | None:
        """Return a buffer that is kept with the weights, `None` where none is known."""
        return self._whole.buffer(name, shape)

    def loaded_names(self) -> Collection[str]:
        """Return the tensors of the unsplit model that a source has."""
        return self._whole.loaded_names() if isinstance(self._whole, LoadedValues) else ()

    def forget(self) -> None:
        """Free what was held to answer."""
        self._last = ("", {})
        self._whole.forget()
