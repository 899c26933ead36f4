"""Adapter folder: what PEFT writes of a model's adapters, and the base model that they are for.

    adapter_config.json           the rank, the scale, and where the base model lies
    adapter_model.safetensors     the adapters, by PEFT's names

A model with adapters begins from both: the base's weights, and adapters that were trained before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from executor.errors import WeightFilesError, WeightsError
from executor.models.adapters import Adapters, name_in_model
from executor.tensor_source import Ranges, SafetensorFiles, open_weights

ADAPTER_FILE = "adapter_model.safetensors"
_CONFIG_FILE = "adapter_config.json"
_BASE = "base_model_name_or_path"
# With these the same adapters make another function.
_SCALE_FIELDS = ("r", "lora_alpha", "use_rslora")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterFolder:
    """A folder of adapters, what its configuration says, and the folder of the base model."""

    path: Path
    fields: Mapping[str, Any]
    base: Path

    @staticmethod
    def at(path: Path) -> AdapterFolder | None:
        """Return the folder at `path`, `None` where no adapters are.

        Raises:
            WeightsError: if its configuration cannot be read, or names no folder that is here.
        """
        file = path / _CONFIG_FILE
        if not file.is_file():
            return None
        try:
            fields = json.loads(file.read_text(encoding="utf-8"))
            base = Path(fields[_BASE])
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise WeightFilesError(
                f"cannot be read: {type(error).__name__}: {error}",
                field="weights",
                value=str(file),
                remedy=f"give a folder that PEFT or trainer.export() wrote, with {_BASE}",
            ) from error
        if not base.is_dir():
            raise WeightFilesError(
                "names a base model of which no folder is here",
                field=f"{file} {_BASE}",
                value=str(base),
                remedy="write the path of the folder with the base model's weights there",
            )
        return AdapterFolder(path=path, fields=fields, base=base)

    def opened(self) -> AdaptedFiles:
        """Return the tensors of the base model and the adapters.

        Raises:
            WeightsError: if they cannot be read.
        """
        adapters = SafetensorFiles(self.path, {ADAPTER_FILE}, place=str(self.path))
        return AdaptedFiles(open_weights(self.base), adapters, place=str(self.path))

    def check_scale(self, adapters: Adapters | None) -> None:
        """Return if a model's adapters have the rank and the scale of those in the folder.

        Raises:
            WeightsError: naming the first field that differs.
        """
        for name in _SCALE_FIELDS:
            built = None if adapters is None else getattr(adapters.config, name)
            if adapters is not None and self.fields.get(name, built) != built:
                raise WeightsError(
                    f"has adapters of {name} {self.fields[name]}",
                    field=f"peft_config.{name}",
                    value=built,
                    remedy=f"build the model by the LoraConfig of {self.path}",
                )


class AdaptedFiles:
    """Tensors of a base model, and adapters under the model's own names."""

    def __init__(self, base: SafetensorFiles, adapters: SafetensorFiles, *, place: str) -> None:
        self.place = place
        self._base = base
        self._adapters = adapters
        self._names = {name_in_model(name): name for name in adapters.shapes()}

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of every tensor."""
        adapters = self._adapters.shapes()
        own = {name: adapters[stored] for name, stored in self._names.items()}
        return {**self._base.shapes(), **own}

    def read(self, name: str, ranges: Ranges) -> torch.Tensor:
        """Return a part of a tensor."""
        if name in self._names:
            return self._adapters.read(self._names[name], ranges)
        return self._base.read(name, ranges)
