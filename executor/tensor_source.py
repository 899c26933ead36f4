"""Tensor source: named tensors of which parts can be read, in files or in memory.

Of safetensors files only the bytes that are asked for are read.
Source: https://huggingface.co/docs/safetensors, for the format and `get_slice`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open

from executor.checkpoint_record import RECORD_NAME
from executor.errors import WeightFilesError, WeightsError

Ranges = tuple[slice, ...]

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_READABLE = {"F64", "F32", "F16", "BF16"}
_BUFFER_FORMATS = {"I64", "I32", "I16", "I8", "U8", "BOOL"}


class TensorSource(Protocol):
    """Tensors by name."""

    place: str

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of every tensor."""

    def read(self, name: str, ranges: Ranges) -> torch.Tensor:
        """Return the part of the tensor `name` that `ranges` has, one range a dimension."""


class StateDict:
    """Tensors in memory."""

    def __init__(self, tensors: Mapping[str, object], *, place: str = "a state dict") -> None:
        self.place = place
        self._tensors: dict[str, torch.Tensor] = {}
        for name, tensor in tensors.items():
            if not isinstance(tensor, torch.Tensor) or tensor.is_meta:
                raise WeightsError(
                    "has an entry that is no tensor with values",
                    field="weights",
                    value=f"{name}: {type(tensor).__qualname__}",
                    remedy="give the state dict of a model that was loaded",
                )
            self._tensors[name] = tensor.detach()

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of every tensor."""
        return {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}

    def read(self, name: str, ranges: Ranges) -> torch.Tensor:
        """Return a part of a tensor."""
        return self._tensors[name][ranges]


class SafetensorFiles:
    """Tensors in files: one, or those that an index names."""

    def __init__(self, folder: Path, file_names: set[str], *, place: str) -> None:
        self.place = place
        self._files: dict[str, Any] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        for file_name in sorted(file_names):
            self._open(folder / file_name)

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of every tensor."""
        return self._shapes

    def read(self, name: str, ranges: Ranges) -> torch.Tensor:
        """Return a part of a tensor.

        Raises:
            WeightsError: if the file cannot be read any more.
        """
        file = self._files[name]
        try:
            tensor: torch.Tensor = file.get_slice(name)[ranges] if ranges else file.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise _unreadable(self.place, f"{name}: {error}") from error
        return tensor

    def _open(self, path: Path) -> None:
        try:
            file = safe_open(path, framework="pt")
            for name in file.keys():  # type: ignore[no-untyped-call] # noqa: SIM118
                piece = file.get_slice(name)  # type: ignore[no-untyped-call]
                _check_format(path, name, piece.get_dtype())
                self._files[name], self._shapes[name] = file, tuple(piece.get_shape())
        except (SafetensorError, OSError) as error:
            raise _unreadable(str(path), str(error)) from error


class Renamed:
    """Tensors of a source, of which `names` have other names now."""

    def __init__(self, source: TensorSource, names: Mapping[str, str]) -> None:
        self.place = source.place
        self._source = source
        self._shapes = {names.get(name, name): shape for name, shape in source.shapes().items()}
        self._names = {new: old for old, new in names.items()}

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of every tensor."""
        return self._shapes

    def read(self, name: str, ranges: Ranges) -> torch.Tensor:
        """Return a part of a tensor."""
        return self._source.read(self._names.get(name, name), ranges)


def open_weights(path: str | Path) -> SafetensorFiles:
    """Return the tensors of a safetensors file, or of a folder as transformers writes it.

    Raises:
        WeightsError: if there are none.
    """
    path = Path(path)
    if path.is_file():
        if path.suffix != ".safetensors":
            raise _none_there(path, f"{path.name} is no safetensors file")
        return SafetensorFiles(path.parent, {path.name}, place=str(path))
    if not path.is_dir():
        raise _none_there(path, "there is no such file or folder")
    return SafetensorFiles(path, _file_names(path), place=str(path))


def _file_names(folder: Path) -> set[str]:
    if (folder / SINGLE_FILE).is_file():
        return {SINGLE_FILE}
    if (folder / INDEX_FILE).is_file():
        return _indexed(folder / INDEX_FILE)
    if (folder / RECORD_NAME).is_file():
        raise WeightsError(
            "holds a checkpoint of a run and no weights in Hugging Face's form",
            field="weights",
            value=str(folder),
            remedy="go on with trainer.load(directory), or give a folder that trainer.export() "
            "wrote",
        )
    held = ", ".join(sorted(item.name for item in folder.iterdir())[:5]) or "nothing"
    raise _none_there(folder, f"it holds {held}")


def _indexed(index: Path) -> set[str]:
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, LookupError, AttributeError) as error:
        raise _unreadable(str(index), f"{type(error).__name__}: {error}") from error
    outside = [name for name in names if not isinstance(name, str) or Path(name).name != name]
    if outside:
        raise _unreadable(str(index), f"names a file outside of its folder: {outside[0]}")
    return names


def _check_format(path: Path, name: str, stored: str) -> None:
    if stored not in _READABLE | _BUFFER_FORMATS:
        raise WeightsError(
            f"has {name} in {stored}, a quantized format without its scales",
            field="weights",
            value=str(path),
            remedy="give weights in bf16, fp16 or fp32",
        )


def _none_there(path: Path, reason: str) -> WeightFilesError:
    return WeightFilesError(
        f"holds no weights: {reason}",
        field="weights",
        value=str(path),
        remedy=f"give a .safetensors file, or a folder with {SINGLE_FILE} or {INDEX_FILE}, as "
        "model.save_pretrained(folder) writes it",
    )


def _unreadable(place: str, reason: str) -> WeightFilesError:
    return WeightFilesError(
        f"cannot be read: {' '.join(reason.split())[:200]}",
        field="weights",
        value=place,
        remedy="copy or download the folder again",
    )
