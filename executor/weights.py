"""Weights: the values that a model begins with, from files or a state dict.

    session.parallelize(build_model, ..., weights="llama/")          # a folder with safetensors
    weights = meshwright.Weights(source="llama/", new=("lm_head.*",))  # all but a head of its own

Each rank reads its own part of each tensor. What is missing and what nobody asked for is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from executor.adapter_folder import AdapterFolder
from executor.apply.materialise import unsplit_name
from executor.apply.whole_tensor import whole_tensor
from executor.errors import WeightsError
from executor.models.adapters import is_adapter
from executor.models.declaration import ModelDeclaration
from executor.models.file_names import FileNames, Stored
from executor.models.first_values import FirstValues
from executor.tensor_source import Ranges, Renamed, StateDict, TensorSource, open_weights

_NAMED = 3
_OF_BITSANDBYTES = ".quant_state.bitsandbytes__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Where weights come from, and where they and the model may differ.

    `source` is a safetensors file, a folder as transformers or PEFT writes it, or a state dict.
    A folder of PEFT's has adapters, and names that of the base model. Tensors of the model that
    match one of `new` begin as they are drawn, and those of the source that match one of `ignored`
    are left there: shell patterns, such as "lm_head.*".
    """

    source: str | Path | Mapping[str, torch.Tensor]
    new: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @staticmethod
    def of(given: WeightsLike) -> Weights:
        """Return weights as `parallelize` takes them, in full."""
        return given if isinstance(given, Weights) else Weights(source=given)

    @property
    def folder(self) -> Path | None:
        """Return the folder that the model's own weights come from, if it is one."""
        if (adapters := self.adapters) is not None:
            return adapters.base
        path = Path(self.source) if isinstance(self.source, str | Path) else None
        return path if path is not None and path.is_dir() else None

    @property
    def adapters(self) -> AdapterFolder | None:
        """Return the folder of adapters that the source is, if it is one.

        Raises:
            WeightsError: if it cannot be read.
        """
        if isinstance(self.source, str | Path):
            return AdapterFolder.at(Path(self.source))
        return None

    def opened(self) -> TensorSource:
        """Return the tensors.

        Raises:
            WeightsError: if they cannot be read.
        """
        if (adapters := self.adapters) is not None:
            return adapters.opened()
        if isinstance(self.source, str | Path):
            return open_weights(self.source)
        return StateDict(self.source)


WeightsLike = str | Path | Mapping[str, torch.Tensor] | Weights


class SampledValues(FirstValues, Protocol):
    """Values of which some are read from a source."""

    def loaded_names(self) -> Collection[str]:
        """Return the tensors of the unsplit model that the source has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A tensor of the unsplit model: its shape, and its names where several modules share it."""

    shape: torch.Size
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Where a source holds a tensor, and where it does once more."""

    stored: Stored
    copies: tuple[Stored, ...]


class LoadedValues:
    """Values read from a source; `drawn` are those of tensors that it does not have."""

    def __init__(
        self, source: TensorSource, found: Mapping[str, Found], *, drawn: FirstValues
    ) -> None:
        self._source: TensorSource | None = source
        self._place = source.place
        self._found = dict(found)
        self._drawn = drawn

    def piece(self, name: str, shape: torch.Size, ranges: Ranges) -> torch.Tensor:
        """Return a part of the parameter `name`.

        Raises:
            WeightsError: if it cannot be read, or the source has two of it that differ.
        """
        found = self._found.get(name)
        if found is None:
            return self._drawn.piece(name, shape, ranges)
        if any(item.start == item.stop for item in ranges):
            return torch.empty([item.stop - item.start for item in ranges])
        assert self._source is not None  # noqa: S101 - asked before `forget`
        value = found.stored.read(self._source, ranges)
        for copy in found.copies:
            if not torch.equal(copy.read(self._source, ranges), value):
                raise WeightsError(
                    f"has other values in {copy.names()[0]} than in {found.stored.names()[0]}, "
                    "which the model shares",
                    field="weights",
                    value=self._place,
                    remedy="build the model without tied weights, or name the copy among "
                    "Weights(ignored=...)",
                )
        return value

    def buffer(self, name: str, shape: torch.Size) -> torch.Tensor | None:
        """Return a buffer that is kept with the weights."""
        whole = tuple(slice(0, size) for size in shape)
        return self.piece(name, shape, whole) if name in self._found else None

    def loaded_names(self) -> Collection[str]:
        """Return the tensors of the unsplit model that the source has."""
        return self._found.keys()

    def forget(self) -> None:
        """Let go of the source."""
        self._source = None
        self._drawn.forget()


def loaded_values(
    weights: Weights,
    model: nn.Module,
    *,
    declaration: ModelDeclaration,
    drawn: FirstValues,
    source: TensorSource | None = None,
) -> LoadedValues:
    """Return the values of `weights` for the unsplit `model`.

    Raises:
        WeightsError: if a tensor is missing, has another shape, or has no place in the model.
    """
    source = source or weights.opened()
    _check_whole(source)
    wanted = wanted_tensors(model, declaration)
    renamed = declaration.file_names.names_in_model(source.shapes(), wanted)
    source = Renamed(source, renamed) if renamed else source
    _check_patterns("new", weights.new, wanted)
    _check_patterns("ignored", weights.ignored, source.shapes())
    files = {
        name: shape
        for name, shape in source.shapes().items()
        if not _matches(name, weights.ignored)
    }
    new = {
        name
        for name in wanted
        if _matches(name, weights.new) or (is_adapter(name) and name not in files)
    }
    found = {
        name: item
        for name, tensor in wanted.items()
        if name not in new and (item := _find(tensor, files, declaration.file_names)) is not None
    }
    _check_complete(source.place, wanted.keys() - found.keys() - new)
    for name, item in found.items():
        for stored in (item.stored, *item.copies):
            _check_shapes(stored, wanted[name].shape, files, name=name, place=source.place)
    used = {name for item in found.values() for name in _names_in_files(item)}
    left = files.keys() - used - new
    _check_all_used(source.place, (n for n in left if not declaration.file_names.is_computed(n)))
    return LoadedValues(source, found, drawn=drawn)


def check_sample(
    model: nn.Module,
    values: SampledValues,
    *,
    declaration: ModelDeclaration,
    device: torch.device,
) -> None:
    """Return if a tensor of each way of lying on the mesh is what the source has of it.

    The smallest is compared, whole; a collective call over the ranks of a stage.

    Raises:
        WeightsError: naming the first that is not.
    """
    smallest: dict[str, tuple[str, nn.Parameter]] = {}
    for given, parameter in model.named_parameters():
        name = unsplit_name(given, declaration)
        known = smallest.get(lies := str(getattr(parameter, "placements", None)))
        is_less = known is None or parameter.numel() < known[1].numel()
        if is_less and name in values.loaded_names():
            smallest[lies] = name, parameter
    for name, parameter in smallest.values():
        whole = whole_tensor(parameter, device)
        everything = tuple(slice(0, size) for size in parameter.shape)
        read = values.piece(name, parameter.shape, everything).to(whole)
        if not torch.allclose(whole, read, rtol=0.0, atol=0.0, equal_nan=True):
            raise WeightsError(
                "was loaded otherwise than the source has it",
                field="weights",
                value=name,
                remedy="check that no other process writes to the source, and report this if not",
            )


def wanted_tensors(model: nn.Module, declaration: ModelDeclaration) -> dict[str, Wanted]:
    """Return parameters and buffers that are kept, by their first name in the unsplit model."""
    names: dict[int, list[str]] = {}
    shapes: dict[int, torch.Size] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if isinstance(tensor, torch.Tensor):
            names.setdefault(id(tensor), []).append(name)
            shapes[id(tensor)] = tensor.shape
    return {
        unsplit_name(same[0], declaration): Wanted(shape=shapes[key], names=tuple(same))
        for key, same in names.items()
    }


def _find(tensor: Wanted, files: Mapping[str, tuple[int, ...]], names: FileNames) -> Found | None:
    each = [names.stored(name, tensor.shape, files) for name in tensor.names]
    known = [item for item in each if item is not None]
    if not known:
        return None
    return Found(stored=known[0], copies=tuple(known[1:]))


def _names_in_files(found: Found) -> Iterator[str]:
    for stored in (found.stored, *found.copies):
        yield from stored.names()


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _check_whole(source: TensorSource) -> None:
    packed = next((name for name in source.shapes() if _OF_BITSANDBYTES in name), None)
    if packed is not None:
        name, _, _ = packed.partition(_OF_BITSANDBYTES)
        raise WeightsError(
            f"has weights that bitsandbytes has packed, such as {name}",
            field="weights",
            value=source.place,
            remedy='call from_pretrained inside `with torch.device("cpu")` in build_model and '
            "leave weights out, or give the folder of whole weights",
        )


def _check_patterns(field: str, patterns: Sequence[str], names: Iterable[str]) -> None:
    known = list(names)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise WeightsError(
                "matches no tensor",
                field=f"weights.{field}",
                value=pattern,
                remedy=f"give a name or pattern of tensors, such as {_listed(known)}",
            )


def _check_complete(place: str, missing: Collection[str]) -> None:
    if missing:
        raise WeightsError(
            f"lacks {len(missing)} of the model's tensors: {_listed(missing)}",
            field="weights",
            value=place,
            remedy="give this model's weights, or let these begin as drawn: "
            "weights=meshwright.Weights(source=..., new=(...,))",
        )


def _check_all_used(place: str, left: Iterable[str]) -> None:
    unexpected = list(left)
    if unexpected:
        raise WeightsError(
            f"has {len(unexpected)} tensors that the model has not: {_listed(unexpected)}",
            field="weights",
            value=place,
            remedy="build the model of these weights, or leave these out: "
            "weights=meshwright.Weights(source=..., ignored=(...,))",
        )


def _check_shapes(
    stored: Stored,
    shape: torch.Size,
    files: Mapping[str, tuple[int, ...]],
    *,
    name: str,
    place: str,
) -> None:
    expected = stored.file_shape(shape)
    for file_name in stored.names():
        if files.get(file_name) == expected:
            continue
        has = "nothing" if file_name not in files else f"shape {list(files[file_name])}"
        raise WeightsError(
            f"has {has} for {file_name}, and the model's {name} needs {list(expected)}",
            field="weights",
            value=place,
            remedy="build the model from the config.json of these weights, and plan that model",
        )


def _listed(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else ""
    return ", ".join(ordered[:_NAMED]) + more
