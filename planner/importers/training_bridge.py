"""Megatron-Bridge: the strategy that its overrides say, `model.tensor_model_parallel_size=4`.

Its fields are Megatron's arguments by other names: they are read as these.
"""

from __future__ import annotations

import re
from dataclasses import replace

from planner.errors import DocumentError
from planner.importers.training_config import Setting, TrainingConfig
from planner.importers.training_megatron import NAMES, megatron_config

_OVERRIDE = re.compile(
    r"(?:^|\s)((?:model|train|ddp|optimizer|checkpoint)\.[a-z_0-9]+)=(\"[^\"]*\"|'[^']*'|\S+)"
)
_VALUES = {
    "model.tensor_model_parallel_size": "--tensor-model-parallel-size",
    "model.pipeline_model_parallel_size": "--pipeline-model-parallel-size",
    "model.virtual_pipeline_model_parallel_size": "--num-virtual-stages-per-pipeline-rank",
    "model.pipeline_model_parallel_layout": "--pipeline-model-parallel-layout",
    "model.num_layers_in_first_pipeline_stage": "--decoder-first-pipeline-num-layers",
    "model.num_layers_in_last_pipeline_stage": "--decoder-last-pipeline-num-layers",
    "model.context_parallel_size": "--context-parallel-size",
    "model.cp_comm_type": "--cp-comm-type",
    "model.expert_model_parallel_size": "--expert-model-parallel-size",
    "model.expert_tensor_parallel_size": "--expert-tensor-parallel-size",
    "model.seq_length": "--seq-length",
    "model.recompute_granularity": "--recompute-granularity",
    "model.recompute_method": "--recompute-method",
    "model.recompute_num_layers": "--recompute-num-layers",
    "model.recompute_modules": "--recompute-modules",
    "model.cpu_offloading_num_layers": "--cpu-offloading-num-layers",
    "train.micro_batch_size": "--micro-batch-size",
    "train.global_batch_size": "--global-batch-size",
    "ddp.num_distributed_optimizer_instances": "--num-distributed-optimizer-instances",
    "ddp.data_parallel_sharding_strategy": "--data-parallel-sharding-strategy",
}
_FLAGS = {
    "model.sequence_parallel": "--sequence-parallel",
    "optimizer.optimizer_cpu_offload": "--optimizer-cpu-offload",
    "ddp.use_distributed_optimizer": "--use-distributed-optimizer",
    "ddp.overlap_grad_reduce": "--overlap-grad-reduce",
    "ddp.use_megatron_fsdp": "--use-megatron-fsdp",
}
_ABSENT = {"null", "none", "~"}


def is_bridge(text: str) -> bool:
    """Return whether the text has overrides that are read."""
    return any(name in _VALUES for name, _ in _OVERRIDE.findall(text))


def read_bridge(text: str, setting: Setting, *, source: str) -> TrainingConfig:
    """Return the strategy and the job that the overrides say, with bf16 as recipes have it.

    Raises:
        DocumentError: naming the override, its value and the remedy.
    """
    values: dict[str, list[str]] = {"--bf16": []}
    for name, quoted in _OVERRIDE.findall(text):
        word = quoted.strip("'\"")
        if name in _FLAGS:
            if _truth(name, word):
                values[_FLAGS[name]] = []
            else:
                values.pop(_FLAGS[name], None)
        elif name in _VALUES and word.lower() not in _ABSENT:
            values[_VALUES[name]] = word.strip("[]").split(",")
    back = {flag: name for name, flag in (*_VALUES.items(), *_FLAGS.items())}
    try:
        config = megatron_config(values, setting, format_name="megatron-bridge")
    except DocumentError as error:
        raise DocumentError(
            _translated(error.problem, back),
            field=back.get(error.field, error.field if error.field != "" else source),
            value=error.value,
            remedy=_translated(error.remedy, back),
        ) from None
    names = {field: back.get(flag, flag) for field, flag in NAMES.items()}
    return replace(config, names=names)


def _truth(name: str, word: str) -> bool:
    if word.lower() in {"true", "1"}:
        return True
    if word.lower() in {"false", "0", *_ABSENT}:
        return False
    raise DocumentError("must be true or false", field=name, value=word, remedy="write true")


def _translated(text: str, back: dict[str, str]) -> str:
    return re.sub(r"--[a-z-]+", lambda match: back.get(match[0], match[0]), text)
