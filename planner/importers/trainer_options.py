"""Options of Hugging Face's Trainer and Accelerate that stand for several settings at once.

`fsdp` as words, `deepspeed` as a mapping, `optim` by name, and the keys of `fsdp_config`. Names are
of transformers 5.23, `training_args.py`, and Accelerate 1.15.0, `commands/config/config_args.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from planner.errors import DocumentError
from planner.importers.fields import Fields
from planner.importers.training_config import Setting, TrainingConfig
from planner.importers.training_deepspeed import read_deepspeed
from planner.schema.strategy import ActivationCheckpointing

_SHARDING = {"full_shard": "FULL_SHARD", "shard_grad_op": "SHARD_GRAD_OP", "no_shard": "NO_SHARD"}
_HYBRIDS = {"hybrid_shard", "hybrid_shard_zero2"}
_BESIDE = {"auto_wrap", "offload", "true"}
_OPTIMIZERS = {
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw",
    "adamw_apex_fused": "adamw",
    "adamw_8bit": "adam8bit",
    "adamw_bnb_8bit": "adam8bit",
    "paged_adamw_8bit": "adam8bit",
    "adafactor": "adafactor",
    "sgd": "sgd",
}
_FSDP_KEYS = (
    "fsdp_activation_checkpointing",
    "fsdp_auto_wrap_policy",
    "fsdp_backward_prefetch",
    "fsdp_cpu_ram_efficient_loading",
    "fsdp_forward_prefetch",
    "fsdp_min_num_params",
    "fsdp_offload_params",
    "fsdp_reshard_after_forward",
    "fsdp_sharding_strategy",
    "fsdp_state_dict_type",
    "fsdp_sync_module_states",
    "fsdp_transformer_layer_cls_to_wrap",
    "fsdp_use_orig_params",
    "fsdp_version",
)
_MICRO, _STEPS = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


def fsdp_options(fields: Mapping[str, Any], own: Fields) -> Fields:
    """Return `fsdp_config` with what the words of `fsdp` add to it: `shard_grad_op offload`.

    Raises:
        DocumentError: if a word is none of them, or stands for a copy a node.
    """
    given = fields["fsdp"]
    words = given if isinstance(given, list) else str(given).split()
    added: dict[str, Any] = {}
    for word in (str(one).lower() for one in words):
        if word in _HYBRIDS:
            raise DocumentError(
                "keeps one copy a node, and nothing says how many nodes there are",
                field="fsdp",
                value=word,
                remedy="use full_shard, and parallelism_config with dp_replicate_size",
            )
        if word not in _SHARDING and word not in _BESIDE:
            raise DocumentError(
                "is no option of fsdp",
                field="fsdp",
                value=word,
                remedy=f"use true, or of {', '.join((*_SHARDING, 'offload', 'auto_wrap'))}",
            )
        if word in _SHARDING:
            added["fsdp_sharding_strategy"] = _SHARDING[word]
        if word == "offload":
            added["cpu_offload"] = True
    return own.filled(added)


def read_trainers_deepspeed(
    fields: Mapping[str, Any], setting: Setting, *, full: bool
) -> TrainingConfig:
    """Return what the mapping under `deepspeed` says, its `auto` filled in as the Trainer does.

    `full` is whether the Trainer checkpoints.

    Raises:
        DocumentError: naming the key, its value and the remedy.
    """
    own = Fields(fields)
    deepspeed = {name: value for name, value in fields["deepspeed"].items() if value != "auto"}
    deepspeed.setdefault(_MICRO, own.size("per_device_train_batch_size", 8))
    deepspeed.setdefault(_STEPS, own.size(_STEPS, 1))
    for name in ("bf16", "fp16"):
        section = deepspeed.get(name)
        automatic = isinstance(section, Mapping) and section.get("enabled") == "auto"
        if automatic or name not in deepspeed:
            deepspeed[name] = {"enabled": own.flag(name, False)}
    config = read_deepspeed(deepspeed, setting)
    if not full:
        return config
    kept = {"activation_checkpointing": ActivationCheckpointing.FULL}
    said = tuple(one for one in config.assumptions if "whether the program checkpoints" not in one)
    return replace(config, strategy=config.strategy.model_copy(update=kept), assumptions=said)


def optimizer_of(own: Fields, assumptions: list[str]) -> dict[str, object]:
    """Return the job's optimizer where `optim` names one; how others are priced is said."""
    given = own.text("optim")
    if given is None:
        return {}
    if given not in _OPTIMIZERS:
        assumptions.append(f"optim {given} is priced as adamw")
    return {"optimizer": _OPTIMIZERS.get(given, "adamw")}


def require_fsdp_keys(section: object) -> None:
    """Raise if a key of Accelerate's `fsdp_config` is nearly one of those that there are.

    Raises:
        DocumentError: naming both.
    """
    for name in section if isinstance(section, Mapping) else ():
        near = get_close_matches(str(name), _FSDP_KEYS, n=1, cutoff=0.9)
        if near and name not in _FSDP_KEYS:
            raise DocumentError(
                "is no key of Accelerate's",
                field=f"fsdp_config.{name}",
                remedy=f"did you mean {near[0]}?",
            )
