"""Primus on Megatron-LM: YAML of an experiment, whose trainer's keys stand under `overrides`.

Names and defaults are of Primus, `primus/configs/modules/megatron/trainer_base.yaml`.
"""

from __future__ import annotations

from planner.importers.training.format import Format, under
from planner.importers.training.formats.megatron_keys import (
    BATCH,
    MODEL,
    NUMBERS,
    STATES,
    beside_under,
)
from planner.schema.job import Stack

_TRAINERS = ("modules.pre_trainer", "modules.post_trainer", "modules.trainer")
_OWN = {**MODEL, **BATCH, **STATES, **NUMBERS, "use_custom_fsdp": "--use-megatron-fsdp"}
_SETS: dict[str, str] = {}
for _trainer in _TRAINERS:
    _SETS |= under(f"{_trainer}.overrides", _OWN)
PRIMUS = Format(
    name="primus",
    title="Primus",
    signature=tuple((f"{trainer}.framework=megatron",) for trainer in _TRAINERS),
    sets=_SETS,
    beside="work_group user_name exp_name workspace platform "
    + " ".join(
        f"{trainer}.{name}"
        for trainer in _TRAINERS
        for name in ("framework", "config", "model", "name")
    )
    + " "
    + beside_under(*(f"{trainer}.overrides" for trainer in _TRAINERS))
    + " "
    + " ".join(
        f"{trainer}.overrides.{name}"
        for trainer in _TRAINERS
        for name in [
            "wandb_project",
            "disable_wandb",
            "disable_tensorboard",
            "stderr_sink_level",
            "log_avg_skip_iterations",
            "log_avg_reset_interval",
            "profile",
            "profile_step_start",
            "profile_step_end",
            "use_pytorch_profiler",
            "moe_router_force_load_balancing",
            "eod_mask_loss",
            "enable_primus_turbo",
            "train_data_path",
            "auto_continue_train",
            "disable_last_saving",
            "gradient_accumulation_fusion",
            "turbo_attention",
            "use_turbo_attention",
            "use_turbo_grouped_mlp",
            "use_turbo_parallel_linear",
            "primus_turbo",
        ]
    ),
    stack=Stack.MEGATRON,
    assumed={
        "bf16": True,
        "--micro-batch-size": 2,
        "--global-batch-size": 128,
        "--seq-length": 4096,
    },
)
