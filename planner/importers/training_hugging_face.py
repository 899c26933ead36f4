"""Accelerate and Hugging Face's Trainer: the strategy that their files say.

Keys are of Accelerate 1.15.0, `commands/config/config_args.py`, and of transformers 5.23,
`TrainingArguments`. An Accelerate file does not say the micro-batch: it is what was given beside
the file, what a comment `# per_device_train_batch_size: 2` says, or 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from planner.errors import DocumentError
from planner.importers.accelerate_plugins import PLUGINS, read_plugin
from planner.importers.fields import Fields
from planner.importers.trainer_options import (
    fsdp_options,
    optimizer_of,
    read_trainers_deepspeed,
    require_fsdp_keys,
)
from planner.importers.training_config import Setting, TrainingConfig
from planner.schema.strategy import ActivationCheckpointing, Offload, Strategy

_COMMENT = re.compile(
    r"^#\s*(per_device_train_batch_size|gradient_accumulation_steps|gradient_checkpointing):"
    r"\s*(\d{1,9}|true|false)\s*$",
    re.MULTILINE,
)
_ACCELERATE_NAMES = {
    "tensor_parallel_degree": "parallelism_config.parallelism_config_tp_size",
    "context_parallel_degree": "parallelism_config.parallelism_config_cp_size",
    "data_parallel_shard_degree": "parallelism_config.parallelism_config_dp_shard_size",
    "data_parallel_replicate_degree": "parallelism_config.parallelism_config_dp_replicate_size",
    "zero_stage": "fsdp_config.fsdp_reshard_after_forward",
    "activation_checkpointing": "fsdp_config.fsdp_activation_checkpointing",
    "offload": "fsdp_config.fsdp_offload_params",
    "micro_batch_size": "per_device_train_batch_size",
    "global_batch_size": "--global-batch-size",
}
_TRAINER_NAMES = {
    "tensor_parallel_degree": "parallelism_config.tp_size",
    "context_parallel_degree": "parallelism_config.cp_size",
    "data_parallel_shard_degree": "parallelism_config.dp_shard_size",
    "data_parallel_replicate_degree": "parallelism_config.dp_replicate_size",
    "zero_stage": "fsdp_config.reshard_after_forward",
    "activation_checkpointing": "fsdp_config.activation_checkpointing",
    "offload": "fsdp_config.cpu_offload",
    "micro_batch_size": "per_device_train_batch_size",
    "global_batch_size": "gradient_accumulation_steps",
}
_PLAIN = {"NO", "MULTI_GPU", "MULTI_CPU"}
_STRATEGIES = {
    "FULL_SHARD": 3,
    "SHARD_GRAD_OP": 2,
    "NO_SHARD": 0,
    "HYBRID_SHARD": 3,
    "HYBRID_SHARD_ZERO2": 2,
    "1": 3,
    "2": 2,
    "3": 0,
    "4": 3,
    "5": 2,
}
_HYBRIDS = {"HYBRID_SHARD", "HYBRID_SHARD_ZERO2", "4", "5"}


def is_accelerate(fields: Mapping[str, Any]) -> bool:
    """Return whether the fields are a file of `accelerate config`."""
    return "distributed_type" in fields


def is_trainer(fields: Mapping[str, Any]) -> bool:
    """Return whether the fields are keyword arguments of `TrainingArguments`."""
    return "per_device_train_batch_size" in fields


def read_accelerate(
    fields: Mapping[str, Any], setting: Setting, *, text: str = ""
) -> TrainingConfig:
    """Return the strategy and the job of an Accelerate file; `text` is searched for comments.

    Raises:
        DocumentError: naming the key, its value and the remedy.
    """
    said = {name: int(value) for name, value in _COMMENT.findall(text) if value.isdigit()}
    full = ("gradient_checkpointing", "true") in _COMMENT.findall(text)
    kind = str(fields.get("distributed_type", "")).upper()
    own = Fields(fields)
    ranks = own.size("num_processes", setting.device_count)
    if ranks != setting.device_count:
        raise DocumentError(
            f"is not the number of the cluster's devices, {setting.device_count}",
            field="num_processes",
            value=ranks,
            remedy="give the cluster that the file is for",
        )
    nodes = own.size("num_machines", 1)
    reading = _Reading(setting=setting, names=_ACCELERATE_NAMES, node_count=nodes)
    if kind in PLUGINS:
        micro = reading.micro_batch(said.get("per_device_train_batch_size"))
        found = read_plugin(fields, setting, kind=kind, micro_batch_size=micro)
        return replace(found, assumptions=(*reading.assumptions, *found.assumptions))
    if fields.get("tp_config"):
        raise DocumentError(
            "is not read",
            field="tp_config",
            remedy="write parallelism_config.parallelism_config_tp_size",
        )
    if kind == "FSDP":
        section = _section(own, fields, "fsdp_config")
        require_fsdp_keys(fields.get("fsdp_config"))
        strategy = reading.sharded(section, _axes(own, fields))
        if full:
            strategy = _checkpointed(strategy)
    elif kind in _PLAIN:
        strategy = _replicas(ranks, full=full)
    else:
        raise DocumentError(
            "is not read",
            field="distributed_type",
            value=kind,
            remedy=f"use FSDP, MULTI_GPU, {' or '.join(PLUGINS)}",
        )
    micro = reading.micro_batch(said.get("per_device_train_batch_size"))
    data = strategy.shard_degree * strategy.replicate_degree
    word = str(fields.get("mixed_precision", "no")).lower()
    precision = word if word in {"bf16", "fp16", "fp8"} else "fp32"
    return TrainingConfig(
        format="accelerate",
        strategy=strategy.model_copy(update={"micro_batch_size": micro}),
        job={
            "stack": "torch",
            "precision": precision,
            "global_batch_size": micro * data * said.get("gradient_accumulation_steps", 1),
        },
        assumptions=tuple(reading.assumptions),
        names=_ACCELERATE_NAMES,
    )


def read_trainer(fields: Mapping[str, Any], setting: Setting) -> TrainingConfig:
    """Return the strategy and the job of `TrainingArguments`' keyword arguments.

    Raises:
        DocumentError: naming the argument, its value and the remedy.
    """
    own = Fields(fields)
    reading = _Reading(setting=setting, names=_TRAINER_NAMES)
    # The older name counts where the newer one is not given or null, as in TrainingArguments.
    newer = fields.get("activation_checkpointing") is not None
    full = own.flag("activation_checkpointing" if newer else "gradient_checkpointing", False)
    if isinstance(fields.get("deepspeed"), Mapping):
        return read_trainers_deepspeed(fields, setting, full=full)
    if fields.get("deepspeed"):
        raise DocumentError(
            "has a file of its own",
            field="deepspeed",
            value=fields["deepspeed"],
            remedy="give that DeepSpeed configuration instead",
        )
    axes = _Axes(fields=_section(own, fields, "parallelism_config"))
    # With tensor parallelism transformers shards the model as it loads it, as ZeRO 3.
    if fields.get("fsdp") or (axes.size("tp") or 1) > 1:
        options = _section(own, fields, "fsdp_config")
        sharded = fsdp_options(fields, options) if fields.get("fsdp") else options
        strategy = reading.sharded(sharded, axes)
        if full:
            strategy = _checkpointed(strategy)
    else:
        strategy = _replicas(setting.device_count, full=full)
    micro = reading.micro_batch(own.size("per_device_train_batch_size", 8))
    steps = own.size("gradient_accumulation_steps", 1)
    fp16 = "fp16" if own.flag("fp16", False) else "fp32"
    data = strategy.shard_degree * strategy.replicate_degree
    return TrainingConfig(
        format="hf-trainer",
        strategy=strategy.model_copy(update={"micro_batch_size": micro}),
        job={
            "stack": "torch",
            "precision": "bf16" if own.flag("bf16", False) else fp16,
            "global_batch_size": micro * steps * data,
            **_kernels(own),
            **optimizer_of(own, reading.assumptions),
        },
        assumptions=tuple(reading.assumptions),
        names=_TRAINER_NAMES,
    )


def _kernels(own: Fields) -> dict[str, bool]:
    """Return what the arguments say of kernels: Liger's fuse norms, and the loss with the head.

    Source: transformers `training_args.py` (`use_liger_kernel`, `torch_compile`); Liger-Kernel
    `transformers/monkey_patch.py`.
    """
    liger = own.flag("use_liger_kernel", False)
    fused = {"fused_elementwise": True} if liger or own.flag("torch_compile", False) else {}
    return {**fused, "fused_linear_loss": True} if liger else fused


def _replicas(ranks: int, *, full: bool) -> Strategy:
    return Strategy(
        data_parallel_replicate_degree=ranks,
        activation_checkpointing=ActivationCheckpointing.FULL
        if full
        else ActivationCheckpointing.NONE,
    )


def _checkpointed(strategy: Strategy) -> Strategy:
    return strategy.model_copy(update={"activation_checkpointing": ActivationCheckpointing.FULL})


def _section(own: Fields, fields: Mapping[str, Any], name: str) -> Fields:
    return own.section(name) if fields.get(name) else Fields({}, section=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axes:
    """The sizes of a `ParallelismConfig`, under the names that a file gives them."""

    fields: Fields
    prefix: str = ""

    def size(self, name: str, default: int | None = 1) -> int | None:
        return self.fields.optional_size(f"{self.prefix}{name}_size", default)

    def spelling(self, name: str) -> str:
        return self.fields.spelling(f"{self.prefix}{name}_size")


def _axes(own: Fields, fields: Mapping[str, Any]) -> _Axes:
    return _Axes(fields=_section(own, fields, "parallelism_config"), prefix="parallelism_config_")


@dataclass(slots=True, kw_only=True)
class _Reading:
    setting: Setting
    names: Mapping[str, str]
    node_count: int = 1
    assumptions: list[str] = field(default_factory=list)

    def sharded(self, own: Fields, axes: _Axes) -> Strategy:
        """Return the strategy of a fully sharded run."""
        tensor, context = axes.size("tp") or 1, axes.size("cp") or 1
        replicate = axes.size("dp_replicate", None) or self._node_replicas(own)
        if (axes.size("sp") or 1) > 1:
            raise DocumentError(
                "exchanges heads through DeepSpeed",
                field=axes.spelling("sp"),
                value=axes.size("sp"),
                remedy="give the DeepSpeed configuration with sequence_parallel_size instead",
            )
        shard = self._shard(axes, tensor * context * replicate)
        full = own.flag(self._own("activation_checkpointing", own), False)
        stage = self._zero_stage(own)
        return Strategy(
            tensor_parallel_degree=tensor,
            context_parallel_degree=context,
            data_parallel_shard_degree=shard,
            data_parallel_replicate_degree=replicate,
            zero_stage=stage,
            activation_checkpointing=ActivationCheckpointing.FULL
            if full
            else ActivationCheckpointing.NONE,
            offload=self._offload(own, stage),
        )

    def _node_replicas(self, own: Fields) -> int:
        """Return the copies of the model that version 1 keeps: one a node in the hybrids."""
        sharding = (own.text("fsdp_sharding_strategy") or "").upper()
        hybrid = sharding in _HYBRIDS and "fsdp_reshard_after_forward" not in own
        return self.node_count if hybrid else 1

    def _shard(self, axes: _Axes, others: int) -> int:
        stated = axes.size("dp_shard", None)
        left, rest = divmod(self.setting.device_count, others)
        if rest or (stated is not None and stated != left):
            raise DocumentError(
                f"and the other sizes do not multiply to the cluster's "
                f"{self.setting.device_count} devices",
                field=axes.spelling("dp_shard"),
                value=stated if stated is not None else f"other sizes {others}",
                remedy="give the cluster that the file is for, or correct a size",
            )
        return left

    @staticmethod
    def _own(name: str, own: Fields) -> str:
        """Return the name as the file has it: Accelerate's have a prefix, the Trainer's may."""
        return f"fsdp_{name}" if f"fsdp_{name}" in own else name

    def _zero_stage(self, own: Fields) -> int:
        sharding = own.text("fsdp_sharding_strategy")
        if sharding is not None and "fsdp_reshard_after_forward" not in own:
            stage = _STRATEGIES.get(sharding.upper())
            if stage is None:
                raise DocumentError(
                    "is not read",
                    field="fsdp_config.fsdp_sharding_strategy",
                    value=sharding,
                    remedy=f"use one of {', '.join(n for n in _STRATEGIES if len(n) > 1)}",
                )
            return stage
        return 3 if own.flag(self._own("reshard_after_forward", own), True) else 2

    def _offload(self, own: Fields, stage: int) -> tuple[Offload, ...]:
        moved = own.flag("fsdp_offload_params", False) or own.flag(
            self._own("cpu_offload", own), False
        )
        if not moved:
            return ()
        if stage == 3:
            return (Offload.OPTIMIZER, Offload.PARAMETERS)
        self.assumptions.append("parameters that stay gathered are priced on the device")
        return (Offload.OPTIMIZER,)

    def micro_batch(self, said: int | None) -> int:
        """Return the micro-batch that was given beside the file or in it."""
        if self.setting.micro_batch_size is not None:
            return self.setting.micro_batch_size
        if said is None:
            self.assumptions.append("the file says no per_device_train_batch_size: 1")
        return said or 1
