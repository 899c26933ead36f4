"""Tensors of an exported program: their sizes, which are parameters, and what a token is."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from planner.errors import UnsupportedModelError

_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 2, 7: 4, 8: 8, 12: 1, 13: 2}
_FLOATING = frozenset({6, 7, 8, 13})
_INTEGERS = frozenset({4, 5})
_SEQUENCE_DIMENSIONS = 2


class Tensors:
    """The tensors of a program by name."""

    def __init__(self, values: Mapping[str, Any], signature: Mapping[str, Any]) -> None:
        self._values = values
        self.parameters: dict[str, str] = {}
        self.inputs: list[str] = []
        for spec in signature["input_specs"]:
            if "parameter" in spec:
                named = spec["parameter"]
                self.parameters[named["arg"]["name"]] = named["parameter_name"]
            elif "user_input" in spec and "as_tensor" in spec["user_input"]["arg"]:
                self.inputs.append(spec["user_input"]["arg"]["as_tensor"]["name"])

    def __contains__(self, name: object) -> bool:
        """Return whether there is such a tensor."""
        return name in self._values

    def sizes(self, name: str) -> tuple[int, ...]:
        """Return a tensor's sizes; of a symbolic one the value that it was exported with.

        Raises:
            UnsupportedModelError: if a size has no such value.
        """
        return tuple(_size(size, name) for size in self._values[name]["sizes"])

    def numel(self, name: str) -> int:
        """Return how many elements a tensor has."""
        return prod(self.sizes(name))

    def is_floating(self, name: str) -> bool:
        """Return whether a tensor's numbers are in the format of compute."""
        return self._values[name]["dtype"] in _FLOATING

    def element_bytes(self, name: str) -> int:
        """Return the bytes of one element."""
        return _BYTES.get(self._values[name]["dtype"], 8)

    def tokens(self) -> tuple[int, int]:
        """Return the tokens that the program was exported with, and those of one sequence.

        A sample of whole numbers is a sequence of tokens; any other is one token.

        Raises:
            UnsupportedModelError: if the program takes no tensor.
        """
        if not self.inputs:
            raise UnsupportedModelError(
                "takes no tensor, so that nobody knows what a token is",
                field="graph_module.signature",
                remedy="export a module whose forward takes its inputs",
            )
        for name in self.inputs:
            sizes = self.sizes(name)
            if self._values[name]["dtype"] in _INTEGERS and len(sizes) == _SEQUENCE_DIMENSIONS:
                return max(prod(sizes), 1), max(sizes[1], 1)
        first = self.sizes(self.inputs[0])
        return max(first[0] if first else 1, 1), 1


def _size(size: Mapping[str, Any], name: str) -> int:
    value = size.get("as_int")
    if value is None:
        value = ((size.get("as_expr") or {}).get("hint") or {}).get("as_int")
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**48:
        raise UnsupportedModelError(
            "has a size without a value",
            field=name[:100],
            value=str(size)[:80],
            remedy="export it with fixed shapes, or use `meshwright trace`",
        )
    return value
