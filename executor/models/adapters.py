"""Adapters: PEFT's LoRA modules in a model, whose own weights stay as they are.

`peft.get_peft_model` puts a module in place of each adapted linear: the linear as `base_layer`, and
two of low rank beside it, `lora_A` and `lora_B`, that alone are trained. peft is not imported: the
model itself brings its classes.

Source: Hu et al. 2021, arXiv:2106.09685, section 4.1; peft 0.21, `tuners/lora/layer.py`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from executor.errors import ModelMismatchError, UnsupportedPlanError
from executor.models.declaration import InitialValue
from executor.models.quantized_linear import quantized_bits, replace_packed
from planner.schema.job import Job

ADAPTER = "default"
_PREFIX = "base_model.model."
_FIRST, _SECOND = f".lora_A.{ADAPTER}.", f".lora_B.{ADAPTER}."
_PLAIN = {
    "use_dora": False,
    "lora_bias": False,
    "bias": "none",
    "init_lora_weights": True,
    "modules_to_save": None,
    "trainable_token_indices": None,
    "target_parameters": None,
    "layer_replication": None,
}
_CONTAINERS = (list, tuple, set, dict)
_LEAVE = "leave {field} as LoraConfig has it"
_REMEDIES = {
    # peft makes "all-linear" of a mixture of transformers' into these, of experts and their router.
    "target_parameters": "adapt linears alone: of a mixture attention's, by "
    "target_modules=['q_proj', 'k_proj', 'v_proj', 'o_proj'] in place of 'all-linear'; experts' "
    "are trained by transformers' Trainer under meshwright.integrations.hugging_face",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """PEFT's configuration of a model's adapters.

    `scalings` say what the product of two adapters is multiplied by, by the path of their linear.
    `turned` linears are GPT-2's, which have their weights the other way round, [inputs, outputs].
    """

    config: Any
    scalings: Mapping[str, float]
    turned: frozenset[str]

    def merged(
        self, path: str, weight: torch.Tensor, first: torch.Tensor, second: torch.Tensor
    ) -> torch.Tensor:
        """Return the weight that does what linear and adapters do together: W + s B A."""
        change = (second @ first) * self.scalings[path]
        return weight + (change.T if path in self.turned else change)

    def write_config(self, directory: Path, base_folder: Path | None) -> None:
        """Write PEFT's configuration, which names the folder of the base model."""
        config = copy.deepcopy(self.config)
        config.inference_mode = True
        if base_folder is not None:
            config.base_model_name_or_path = str(base_folder)
        config.save_pretrained(str(directory))

    @property
    def dropout(self) -> float:
        """Return how much of what an adapter reads is dropped."""
        return float(self.config.lora_dropout)


def without_wrapper(built: nn.Module) -> tuple[nn.Module, Adapters | None]:
    """Return the model that PEFT wraps, with its adapters, or any other model as it is.

    Raises:
        UnsupportedPlanError: if they are no plain LoRA, or beside other modules than linears.
    """
    quantized_bits(built)
    replace_packed(built)
    configs = getattr(built, "peft_config", None)
    if not isinstance(configs, dict) or not hasattr(built, "get_base_model"):
        return built, None
    config = configs.get(ADAPTER)
    if config is None or len(configs) != 1 or config.peft_type != "LORA":
        kinds = ", ".join(f"{name}: {item.peft_type}" for name, item in configs.items())
        raise _unsupported("adapters", kinds, f"give one LoraConfig, under the name {ADAPTER}")
    for field, plain in _PLAIN.items():
        value = getattr(config, field, plain)
        says_nothing = value is None or (isinstance(value, _CONTAINERS) and not value)
        if value != plain and not says_nothing:
            raise _unsupported(field, value, _REMEDIES.get(field, _LEAVE.format(field=field)))
    base: nn.Module = built.get_base_model()  # type: ignore[operator]
    _check_layers(base)
    adapted = {path: module for path, module in base.named_modules() if is_adapted(module)}
    turned = {p for p, module in adapted.items() if not isinstance(unadapted(module), nn.Linear)}
    return base, Adapters(
        config=config,
        scalings={path: float(module.scaling[ADAPTER]) for path, module in adapted.items()},
        turned=frozenset(turned),
    )


def check_planned_adapters(adapters: Adapters | None, model: nn.Module, job: Job) -> None:
    """Return if a model has the adapters that were planned, on weights in as many bits.

    Raises:
        ModelMismatchError: naming what is otherwise.
        UnsupportedPlanError: if dropout is asked for where ranks share a layer.
    """
    planned = job.adapters
    rank = None if adapters is None else int(adapters.config.r)
    if rank != (None if planned is None else planned.rank):
        raise ModelMismatchError(
            "the plan has no adapters"
            if planned is None
            else f"adapters of rank {planned.rank} were planned",
            field="build_model",
            value="no adapters" if rank is None else f"adapters of rank {rank}",
            remedy="return peft.get_peft_model(model, LoraConfig(r=...)) of the planned rank, or "
            "plan with the job's adapters as the model has them",
        )
    bits, built = 16 if planned is None else planned.base_bits, quantized_bits(model) or {16}
    if built != {bits}:
        raise ModelMismatchError(
            f"frozen weights in {bits} bits were planned",
            field="build_model",
            value=f"linears in {' and '.join(map(str, sorted(built)))} bits",
            remedy="build linears of blocks as bitsandbytes has them, by transformers' "
            "replace_with_bnb_linear, or plan adapters with the base_bits that the model has",
        )


def check_split_adapters(adapters: Adapters | None, tensor_parallel_degree: int) -> None:
    """Return if ranks that share a layer would compute its adapters alike.

    Raises:
        UnsupportedPlanError: if what adapters drop would be drawn apart.
    """
    if adapters is not None and adapters.dropout > 0.0 and tensor_parallel_degree > 1:
        raise UnsupportedPlanError(
            "what adapters drop of parts of a layer would be alike on ranks that share it",
            field="lora_dropout",
            value=adapters.dropout,
            remedy="use lora_dropout=0.0, or plan with tensor_parallel_degree limited to 1",
        )


def is_adapted(module: nn.Module | None) -> bool:
    """Return whether PEFT has put adapters beside a linear here."""
    return module is not None and hasattr(module, "base_layer") and hasattr(module, "lora_A")


def unadapted(module: nn.Module | None) -> nn.Module | None:
    """Return the linear itself, where `module` is one with adapters."""
    found = getattr(module, "base_layer", module)
    return found if isinstance(found, nn.Module) else None


def is_adapter(name: str) -> bool:
    """Return whether a parameter is an adapter's, by its name in the model."""
    return _FIRST in name or _SECOND in name


def with_adapter_values(initial_value: InitialValue, model: nn.Module) -> InitialValue:
    """Return how a model with adapters begins: as PEFT has it, so that they change nothing.

    lora_A is uniform within 1 / sqrt(inputs), as `kaiming_uniform_(a=sqrt(5))` has it; lora_B is 0.
    """
    inputs = {
        name: parameter.shape[1] for name, parameter in model.named_parameters() if _FIRST in name
    }

    def value(name: str, shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
        if _SECOND in name:
            return torch.zeros(shape)
        if name not in inputs:
            return initial_value(name.replace(".base_layer.", "."), shape, generator)
        bound = 1.0 / math.sqrt(inputs[name])
        return torch.empty(shape).uniform_(-bound, bound, generator=generator)

    return value


def exported_name(name: str) -> str:
    """Return what PEFT's files call the adapter `name`."""
    return f"{_PREFIX}{name.replace(f'.{ADAPTER}.', '.')}"


def name_in_model(exported: str) -> str:
    """Return the name in the unsplit model of what PEFT's files call `exported`."""
    bare, _, kind = exported.removeprefix(_PREFIX).rpartition(".")
    return f"{bare}.{ADAPTER}.{kind}"


def _check_layers(base: nn.Module) -> None:
    names: dict[int, list[str]] = {}
    for name, parameter in base.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    for path, module in base.named_modules():
        adapted = unadapted(module) if is_adapted(module) else None
        shared = names.get(id(getattr(adapted, "weight", None)), [])
        if len(shared) > 1:
            raise _unsupported(
                "target_modules",
                f"{path}, whose weight is {' and '.join(shared)}",
                "adapt linears with a weight of their own, or build the model without tied weights",
            )
        if hasattr(module, "lora_A") and not _is_linear(unadapted(module)):
            raise _unsupported(
                "target_modules",
                f"{path}, a {type(unadapted(module)).__qualname__}",
                "adapt linears alone, torch's or those of bitsandbytes in 4 or 8 bits",
            )


def _is_linear(module: nn.Module | None) -> bool:
    is_plain = type(module) is nn.Linear or type(module).__name__ == "Conv1D"
    return is_plain or (module is not None and bool(quantized_bits(module)))


def _unsupported(field: str, value: object, remedy: str) -> UnsupportedPlanError:
    return UnsupportedPlanError(
        "the executor trains plain low-rank adapters of linears (LoRA)",
        field=f"peft_config.{field}",
        value=value,
        remedy=remedy,
    )
