"""Primus on Megatron-LM: YAML of an experiment, whose trainer's keys stand under `overrides`.

Names and defaults are of Primus, `primus/configs/modules/megatron/trainer_base.yaml`.
"""

from __future__ import annotations

from planner.importers.training.format import Format, under
from planner.importers.training.formats.megatron_keys import (
    BATCH,
    GRADIENTS,
    MODEL,
    NUMBERS,
    STATES,
    beside_under,
)
from planner.schema.job import Stack

_TRAINERS = ("modules.pre_trainer", "modules.post_trainer", "modules.trainer")
_OWN = {
    **MODEL,
    **BATCH,
    **STATES,
    **GRADIENTS,
    **NUMBERS,
    "use_custom_fsdp": "--use-megatron-fsdp",
    "optimizer": "optimizer",
}
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
            "use_turbo_grouped_gemm",
            "use_turbo_deepep",
            "turbo_deepep_num_cu",
            "turbo_deepep_use_comm_stream",
            "turbo_sync_free_moe_stage",
            "moe_use_legacy_grouped_gemm",
            "create_attention_mask_in_dataloader",
            "original_max_position_embeddings",
            "check_for_nan_in_loss_and_grad",
            "multi_latent_attention",
            "distributed_timeout_minutes",
            "log_throughput",
            "barrier_with_L1_time",
            "spec",
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
