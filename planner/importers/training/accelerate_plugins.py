"""Accelerate's plugins: the strategy that an Accelerate file says to DeepSpeed or Megatron-LM.

Keys are of Accelerate 1.15.0, `commands/config/cluster.py`; they are read as DeepSpeed's keys and
as Megatron's arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from planner.errors import DocumentError
from planner.importers.fields import Fields
from planner.importers.training.config import Setting, TrainingConfig, data_parallel_degree
from planner.importers.training.deepspeed import NAMES as DEEPSPEED_NAMES
from planner.importers.training.deepspeed import read_deepspeed
from planner.importers.training.megatron import NAMES as MEGATRON_NAMES
from planner.importers.training.megatron import megatron_config

PLUGINS = ("DEEPSPEED", "MEGATRON_LM")
_DEEPSPEED = {
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
    "train_batch_size": "--global-batch-size",
    "gradient_accumulation_steps": "deepspeed_config.gradient_accumulation_steps",
    "zero_optimization.stage": "deepspeed_config.zero_stage",
    "zero_optimization.offload_optimizer": "deepspeed_config.offload_optimizer_device",
    "zero_optimization.offload_optimizer.device": "deepspeed_config.offload_optimizer_device",
    "zero_optimization.offload_param": "deepspeed_config.offload_param_device",
    "zero_optimization.offload_param.device": "deepspeed_config.offload_param_device",
}
_MEGATRON = {
    "--tensor-model-parallel-size": "megatron_lm_config.megatron_lm_tp_degree",
    "--pipeline-model-parallel-size": "megatron_lm_config.megatron_lm_pp_degree",
    "--sequence-parallel": "megatron_lm_config.megatron_lm_sequence_parallelism",
    "--recompute-granularity": "megatron_lm_config.megatron_lm_recompute_activations",
    "--use-distributed-optimizer": "megatron_lm_config.megatron_lm_use_distributed_optimizer",
    "--micro-batch-size": "per_device_train_batch_size",
    "--global-batch-size": "megatron_lm_config.megatron_lm_num_micro_batches",
}


def read_plugin(
    fields: Mapping[str, Any], setting: Setting, *, kind: str, micro_batch_size: int
) -> TrainingConfig:
    """Return the strategy and the job that a file for one of the plugins says.

    Raises:
        DocumentError: naming the key, its value and the remedy.
    """
    if kind == "DEEPSPEED":
        return _in_words(
            lambda: read_deepspeed(_deepspeed_fields(fields, micro_batch_size), setting),
            _DEEPSPEED,
            DEEPSPEED_NAMES,
        )
    return _in_words(
        lambda: _megatron(fields, setting, micro_batch_size), _MEGATRON, MEGATRON_NAMES
    )


def _in_words(
    read: Callable[[], TrainingConfig], words: Mapping[str, str], names: Mapping[str, str]
) -> TrainingConfig:
    """Return what is read, or the error, by the names that the Accelerate file gives."""
    try:
        config = read()
    except DocumentError as error:
        raise DocumentError(
            error.problem,
            field=words.get(error.field, error.field),
            value=error.value,
            remedy=error.remedy,
        ) from None
    own = {field: words.get(name, name) for field, name in names.items()}
    return replace(config, format="accelerate", names=own)


def _precision(fields: Mapping[str, Any]) -> str:
    return str(fields.get("mixed_precision", "no")).lower()


def _deepspeed_fields(fields: Mapping[str, Any], micro_batch_size: int) -> dict[str, Any]:
    """Return DeepSpeed's own fields.

    Raises:
        DocumentError: if they are in a file of their own, or no mapping.
    """
    own = Fields(fields).section("deepspeed_config")
    file = own.text("deepspeed_config_file")
    if file is not None:
        raise DocumentError(
            "has a file of its own",
            field="deepspeed_config.deepspeed_config_file",
            value=file,
            remedy="give that DeepSpeed configuration instead",
        )
    zero: dict[str, Any] = {"stage": own.size("zero_stage", 2, minimum=0)}
    for name in ("offload_optimizer", "offload_param"):
        device = own.text(f"{name}_device")
        if device is not None:
            zero[name] = {"device": device}
    word = _precision(fields)
    parallel = fields.get("parallelism_config")
    axes = Fields(parallel if isinstance(parallel, Mapping) else {}, section="parallelism_config")
    return {
        "sequence_parallel_size": axes.size("parallelism_config_sp_size", 1),
        "train_micro_batch_size_per_gpu": micro_batch_size,
        "gradient_accumulation_steps": own.size("gradient_accumulation_steps", 1),
        "zero_optimization": zero,
        "gradient_clipping": 1.0 if "gradient_clipping" in own else None,
        **({word: {"enabled": True}} if word in {"bf16", "fp16"} else {}),
    }


def _megatron(fields: Mapping[str, Any], setting: Setting, micro_batch_size: int) -> TrainingConfig:
    own = Fields(fields).section("megatron_lm_config")
    tensor = own.size("megatron_lm_tp_degree", 1)
    pipeline = own.size("megatron_lm_pp_degree", 1)
    degrees = {"megatron_lm_tp_degree": tensor, "megatron_lm_pp_degree": pipeline}
    data = data_parallel_degree(setting, degrees)
    batch = micro_batch_size * data * own.size("megatron_lm_num_micro_batches", 1)
    values: dict[str, list[str]] = {
        "--tensor-model-parallel-size": [str(tensor)],
        "--pipeline-model-parallel-size": [str(pipeline)],
        "--micro-batch-size": [str(micro_batch_size)],
        "--global-batch-size": [str(batch)],
    }
    flags = {
        "--sequence-parallel": own.flag("megatron_lm_sequence_parallelism", False),
        "--recompute-activations": own.flag("megatron_lm_recompute_activations", False),
        "--use-distributed-optimizer": own.flag("megatron_lm_use_distributed_optimizer", False),
        f"--{_precision(fields)}": _precision(fields) in {"bf16", "fp16"},
    }
    values |= {flag: [] for flag, given in flags.items() if given}
    return megatron_config(values, setting)
