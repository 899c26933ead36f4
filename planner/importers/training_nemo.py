"""Megatron's settings as YAML keys: NeMo's recipes, and Megatron-LM's own `--yaml-cfg`.

A key says the same wherever it stands: `model.tensor_model_parallel_size` of NeMo, and of Megatron
`model_parallel.tensor_model_parallel_size` or the key alone. They are read as Megatron's arguments.

Source: NVIDIA/NeMo-Framework-Launcher, launcher_scripts/conf/training; Megatron-LM 0.19.2,
megatron/training/yaml_arguments.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from planner.errors import DocumentError
from planner.importers.training_config import Setting, TrainingConfig
from planner.importers.training_megatron import NAMES, megatron_config

_VALUES = {
    "tensor_model_parallel_size": "--tensor-model-parallel-size",
    "pipeline_model_parallel_size": "--pipeline-model-parallel-size",
    "virtual_pipeline_model_parallel_size": "--num-virtual-stages-per-pipeline-rank",
    "num_layers_per_virtual_pipeline_stage": "--num-layers-per-virtual-pipeline-stage",
    "context_parallel_size": "--context-parallel-size",
    "cp_comm_type": "--cp-comm-type",
    "expert_model_parallel_size": "--expert-model-parallel-size",
    "expert_tensor_parallel_size": "--expert-tensor-parallel-size",
    "seq_length": "--seq-length",
    "encoder_seq_length": "--seq-length",
    "micro_batch_size": "--micro-batch-size",
    "global_batch_size": "--global-batch-size",
    "recompute_granularity": "--recompute-granularity",
    "recompute_method": "--recompute-method",
    "recompute_num_layers": "--recompute-num-layers",
    "recompute_modules": "--recompute-modules",
    "activations_checkpoint_granularity": "--recompute-granularity",
    "activations_checkpoint_method": "--recompute-method",
    "activations_checkpoint_num_layers": "--recompute-num-layers",
}
_FLAGS = {
    "sequence_parallel": "--sequence-parallel",
    "use_distributed_optimizer": "--use-distributed-optimizer",
    "overlap_grad_reduce": "--overlap-grad-reduce",
    "overlap_grad_sync": "--overlap-grad-reduce",
    "overlap_param_gather": "--overlap-param-gather",
    "bf16": "--bf16",
    "fp16": "--fp16",
}
_DISTRIBUTED = {"distributed_fused_adam", "mcore_distributed_optim"}  # under optim.name
_PRECISIONS = {"bf16": "--bf16", "16": "--fp16"}  # of trainer.precision: bf16, bf16-mixed, 16
_MARKS = ("tensor_model_parallel_size", "pipeline_model_parallel_size")
_INTERPOLATED = re.compile(r"\$\{")
_DEPTH_LIMIT = 8


def is_nemo(fields: Mapping[str, Any]) -> bool:
    """Return whether the keys of Megatron's degrees stand in the mapping, however deep."""
    return any(path.rsplit(".", maxsplit=1)[-1] in _MARKS for path, _ in _leaves(fields))


def read_nemo(fields: Mapping[str, Any], setting: Setting) -> TrainingConfig:
    """Return the strategy and the job that the keys say.

    Raises:
        DocumentError: naming the key, its value and the remedy.
    """
    values: dict[str, list[str]] = {}
    back: dict[str, str] = {}
    for path, value in _leaves(fields):
        flag, words = _argument(path, value)
        if flag is not None:
            values[flag] = words
            back[flag] = path
    try:
        config = megatron_config(values, setting, format_name="megatron-lm")
    except DocumentError as error:
        raise DocumentError(
            _translated(error.problem, back),
            field=back.get(error.field, error.field),
            value=error.value,
            remedy=_translated(error.remedy, back),
        ) from None
    return replace(config, names={field: back.get(flag, flag) for field, flag in NAMES.items()})


def _leaves(
    fields: Mapping[str, Any], prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and depth < _DEPTH_LIMIT:
            yield from _leaves(value, f"{path}.", depth + 1)
        else:
            yield path, value


def _argument(path: str, value: object) -> tuple[str | None, list[str]]:
    """Return the flag that a key stands for and its words, None if it says nothing of ours.

    Raises:
        DocumentError: if its value refers to another key, or the key is nearly one of those read.
    """
    name = path.rsplit(".", maxsplit=1)[-1]
    if name == "precision":
        return _PRECISIONS.get(str(value).removesuffix("-mixed")), []
    if path.endswith("optim.name"):
        return ("--use-distributed-optimizer" if value in _DISTRIBUTED else None), []
    if name in _FLAGS:
        return (_FLAGS[name] if value is True else None), []
    if name not in _VALUES:
        _require_spelled(path, name)
        return None, []
    if value is None:
        return None, []
    if isinstance(value, str) and _INTERPOLATED.search(value):
        raise DocumentError(
            "refers to another key, which is not looked up",
            field=path,
            value=value,
            remedy="write the number",
        )
    return _VALUES[name], [str(one) for one in (value if isinstance(value, list) else [value])]


def _require_spelled(path: str, name: str) -> None:
    near = get_close_matches(name, _MARKS, n=1, cutoff=0.9)
    if near:
        raise DocumentError(
            "is no key of Megatron's", field=path, remedy=f"did you mean {near[0]}?"
        )


def _translated(text: str, back: dict[str, str]) -> str:
    return re.sub(r"--[a-z-]+", lambda match: back.get(match[0], match[0]), text)
