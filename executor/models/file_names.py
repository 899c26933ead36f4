"""File names: what Hugging Face's files call a model's tensors, and how they hold experts.

A mixture's experts are one tensor each for what comes before and after the activation,
[E, 2, F, D] and [E, D, F]. Files have a matrix for every expert, or, as transformers holds them
itself, [E, 2 F, D] and [E, D, F].
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from executor.tensor_source import Ranges, TensorSource

_EXPERTS = re.compile(r"^(.*\.)mlp\.experts\.(gate_up_proj|down_proj)$")
# PEFT keeps a linear that has adapters one module further down.
_ADAPTED = ".base_layer."
# Tables that earlier releases of transformers kept among the weights.
_COMPUTED = (r"rotary_emb\.inv_freq$", r"attn\.masked_bias$")


class Renaming(Protocol):
    """One of transformers' `WeightRenaming`."""

    def rename_source_key(self, source_key: str) -> tuple[str, str | None]:
        """Return a name of a file as the model has it, and the pattern that it matched."""


class Stored(Protocol):
    """How files hold one tensor of the model, of `shape` there."""

    def names(self) -> Sequence[str]:
        """Return the names of the tensors in the files."""

    def file_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape that each of them has if the model's tensor has `shape`."""

    def read(self, source: TensorSource, ranges: Ranges) -> torch.Tensor:
        """Return a part of the model's tensor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AsItIs:
    """A tensor of the same shape."""

    name: str

    def names(self) -> Sequence[str]:
        """Return its name."""
        return (self.name,)

    def file_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape itself."""
        return tuple(shape)

    def read(self, source: TensorSource, ranges: Ranges) -> torch.Tensor:
        """Return a part of it."""
        return source.read(self.name, ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Gate and up of all experts in one tensor, [E, 2 F, D], of `width` F."""

    name: str
    width: int

    def names(self) -> Sequence[str]:
        """Return its name."""
        return (self.name,)

    def file_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return [E, 2 F, D]."""
        experts, matrices, width, hidden = shape
        return experts, matrices * width, hidden

    def read(self, source: TensorSource, ranges: Ranges) -> torch.Tensor:
        """Return a part of [E, 2, F, D]."""
        experts, matrices, rows, columns = ranges
        first, last = rows.start, rows.stop
        parts = [
            source.read(
                self.name,
                (experts, slice(place * self.width + first, place * self.width + last), columns),
            )
            for place in range(matrices.start, matrices.stop)
        ]
        return torch.stack(parts, dim=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class EachExpert:
    """A matrix for every expert: `matrices` has the names of gate and up, or of down alone."""

    matrices: tuple[tuple[str, ...], ...]

    def names(self) -> Sequence[str]:
        """Return the names of all experts' matrices."""
        return tuple(name for expert in self.matrices for name in expert)

    def file_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of one matrix."""
        return tuple(shape[-2:])

    def read(self, source: TensorSource, ranges: Ranges) -> torch.Tensor:
        """Return a part of [E, 2, F, D], or of [E, D, F]."""
        *outer, rows, columns = ranges
        held = self.matrices[outer[0]]
        if len(outer) == 1:
            return torch.stack([source.read(name, (rows, columns)) for (name,) in held])
        chosen = [[source.read(name, (rows, columns)) for name in item[outer[1]]] for item in held]
        return torch.stack([torch.stack(item) for item in chosen])


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertNames:
    """What files call a mixture and the matrices of one expert."""

    mixture: str
    gate: str
    up: str
    down: str

    def renamed(self, name: str) -> str:
        """Return a name as it is in files, where it is no tensor of all experts."""
        return name.replace(".mlp.", f".{self.mixture}.")

    def matrices(self, name: str, count: int) -> tuple[tuple[str, ...], ...] | None:
        """Return the matrices of each of `count` experts, `None` for what is no expert's tensor."""
        found = _EXPERTS.match(name)
        if found is None:
            return None
        kinds = (self.gate, self.up) if found[2] == "gate_up_proj" else (self.down,)
        home = f"{found[1]}{self.mixture}.experts"
        return tuple(
            tuple(f"{home}.{expert}.{kind}.weight" for kind in kinds) for expert in range(count)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileNames:
    """What files call the tensors of a model.

    Files of a base model leave `base_prefix` out. Tensors that match one of `computed` are made
    from the configuration, whatever files have. `renamings` are transformers' own, by which names
    of earlier releases, in which files are still written, become those of the model.
    """

    base_prefix: str = ""
    experts: ExpertNames | None = None
    computed: tuple[str, ...] = ()
    renamings: tuple[Renaming, ...] = ()

    @staticmethod
    def of(model: object, experts: ExpertNames | None = None) -> FileNames:
        """Return what a model says of its files, if it is one of transformers'."""
        prefix = getattr(model, "base_model_prefix", "")
        ignored = getattr(model, "_keys_to_ignore_on_load_unexpected", None)
        return FileNames(
            base_prefix=f"{prefix}." if isinstance(prefix, str) and prefix else "",
            experts=experts,
            computed=tuple(ignored or ()),
            renamings=_renamings(model),
        )

    def names_in_model(self, files: Iterable[str], wanted: Collection[str]) -> dict[str, str]:
        """Return what the model calls the tensors of files that it has under another name."""
        found: dict[str, str] = {}
        for name in files:
            renamed = name
            for item in self.renamings:
                renamed, _ = item.rename_source_key(renamed)
            is_wanted = renamed in wanted or f"{self.base_prefix}{renamed}" in wanted
            if renamed != name and name not in wanted and is_wanted:
                found[name] = renamed
        return found

    def is_computed(self, name: str) -> bool:
        """Return whether a tensor in a file is none of the model's weights."""
        return any(re.search(pattern, name) for pattern in (*_COMPUTED, *self.computed))

    def stored(
        self, name: str, shape: Sequence[int], files: Mapping[str, tuple[int, ...]]
    ) -> Stored | None:
        """Return how `files`, shapes by name, hold the tensor `name`, `None` if they do not."""
        for plain in self._candidates(name, files):
            if self.experts is not None and _EXPERTS.match(plain):
                matrices = self.experts.matrices(plain, shape[0])
                if matrices is not None and matrices[0][0] in files:
                    return EachExpert(matrices=matrices)
            is_packed = plain in files and len(files[plain]) == 3 and len(shape) == 4
            if is_packed:
                return Packed(name=plain, width=shape[2])
            if plain in files:
                return AsItIs(name=plain)
        return None

    def written(self, name: str, whole: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the tensors of a file that hold the model's tensor `name`."""
        name = name.replace(_ADAPTED, ".")
        if self.experts is None:
            yield name, whole
            return
        matrices = self.experts.matrices(name, whole.shape[0])
        if matrices is None:
            yield self.experts.renamed(name), whole
            return
        for expert, kinds in enumerate(matrices):
            for place, file_name in enumerate(kinds):
                yield file_name, whole[expert] if len(kinds) == 1 else whole[expert, place]

    def _candidates(self, name: str, files: Collection[str]) -> Iterator[str]:
        if name in files:  # of a model that has its adapters already
            yield name
        name = name.replace(_ADAPTED, ".")
        names = [name] if self.experts is None else [name, self.experts.renamed(name)]
        yield from names
        if not self.base_prefix:
            return
        if any(item.startswith(self.base_prefix) for item in files):
            yield from (self.base_prefix + item for item in names)
        else:
            yield from (item.removeprefix(self.base_prefix) for item in names)


def _renamings(model: object) -> tuple[Renaming, ...]:
    """Return how transformers renames what it reads for a model of its own; it is not imported.

    Conversions of values are left out: what needs one is missed by name.
    """
    package = sys.modules.get("transformers.conversion_mapping")
    if package is None or not hasattr(model, "all_tied_weights_keys"):
        return ()
    found = package.get_model_conversion_mapping(model)
    return tuple(item for item in found if not getattr(item, "operations", None))
